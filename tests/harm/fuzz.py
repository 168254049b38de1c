"""``python -m tests.harm.fuzz [SECONDS]``: the loop fuzz on each Python found, native and pure."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from tests.harm.running import ROOT, How, environment, pythons


def main(seconds: str) -> int:
    """Run them one after the other, each with a seed of its own."""
    ended = 0
    cores: tuple[How, ...] = ("native", "pure")
    for python in pythons():
        for core in cores:
            seed = str(time.time_ns() % 1_000_000)
            command = [python, "-X", "faulthandler", "-m", "tests.harm.programs.loop_fuzz", core, seconds, seed]
            done = subprocess.run(command, cwd=ROOT, env=environment(core), capture_output=True, text=True, check=False)
            if done.returncode:
                last = "\n".join(done.stderr.splitlines()[-30:])
                print(f"{python}, {core}, seed {seed}: ended with {done.returncode}\n{last}")
                ended = 1
                continue
            found = json.loads(done.stdout.splitlines()[-1])
            said = "the same" if found["differs"] is None else json.dumps(found["differs"], indent=1)
            print(f"{found['python']}, {core}, seed {seed}: {found['examples']} programs, {said} {found['disabled']}")
            ended = max(ended, int(found["differs"] is not None))
    return ended


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "120"))
