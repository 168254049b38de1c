"""Visits a server many times from one process, without the look from outside, and says what came of it.

python -m tests.launch.attach_rounds PID ROUNDS
"""

from __future__ import annotations

import json
import sys

from mcp_probe.launch.inside.visit import Wish, visit
from mcp_probe.launch.outside.target import find


def main(pid: int, count: int) -> int:
    requests = visits = 0
    for number in range(count):
        wish = Wish(options={"memory": "light", "awaits": True}, seconds=0.02 if number % 10 else 0.5)
        visited = visit(find(pid), wish, tell=lambda sentence: None)
        requests += sum(report.requests for report in visited.reports)
        visits += 1
        problems = [sentence for sentence in visited.sentences if sentence]
        if problems:
            print(problems, file=sys.stderr)
            return 1
    print(json.dumps({"visits": visits, "requests": requests}))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
