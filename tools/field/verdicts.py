"""`python -m tools.field.verdicts FOLDER [WORD …]`: the verdict on servers whose fault their source shows.

FOLDER holds one environment for each of requirements/field-*.txt, named as the file; field-docker is mcp-server-docker
0.2.1 with mcp<2, which needs Python 3.12 and has no lock. Somebody has read each server's source and written down
where it loses its clients' time, or that it does not. Prints a Markdown table for docs/field-reports.md: the fault
beside the verdict, and where the finding that was looked for came out.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Literal

from tools.compatibility import table
from tools.field import __main__ as field
from tools.field import servers
from tools.field.client import Client, Silent
from tools.field.servers import Ask, Row, Setting, Transport

Place = Literal["right", "second", "wrong"]


@dataclass(frozen=True, slots=True)
class Case:
    """A server, what its source says, and the findings that would say the same. ``asks`` is repeated in turn."""

    row: Row
    fault: str
    codes: tuple[str, ...]
    says: str = ""
    """What the verdict's sentence must hold, too."""
    pattern: str = "hqqq"
    """One letter for each call: the holding one of the setting, or the quick one."""
    calls: int = 80
    in_flight: int = 6

    @property
    def name(self) -> str:
        return f"{self.row.name} {self.pattern} {self.codes[0]}"


def ask(case: Case) -> Callable[[Client, Row, Setting], None]:
    """Keeps ``in_flight`` calls under way: one more whenever the oldest has its answer."""

    def converse(client: Client, row: Row, setting: Setting) -> None:
        kinds: Mapping[str, Ask] = {"h": setting.holding, "q": setting.quick}
        turns = itertools.islice(itertools.cycle(case.pattern), case.calls)
        under_way = []
        for what in map(kinds.__getitem__, turns):
            under_way.append(client.call(what.tool, what.arguments, label="verdict"))
            if len(under_way) >= case.in_flight:
                client.wait(under_way[:1])
                under_way = [one for one in under_way if one.answered_s is None]
        client.wait(under_way)

    return converse


def run(case: Case, environments: Path) -> tuple[Client, Mapping[str, Any]]:
    """The client and the report.

    Raises:
        Silent: The server cannot be asked here, or every third call fails; the message says why.
    """
    kept = field.KEPT / "verdicts" / case.name.replace(" ", "-")
    client, _ = field.drive(case.row, environments, kept, ask(case))
    failures = [f"{one.operation}: {one.failure[:200]}" for one in client.exchanges if one.failure]
    if len(failures) > len(client.exchanges) / 3:
        raise Silent(f"{len(failures)} calls fail: {failures[-1]}")
    return client, field.read_report(kept / "report.json")


def place(case: Case, report: Mapping[str, Any]) -> Place:
    """Whether the verdict is the fault; else whether a finding that is not `info` is."""
    verdict = report["verdict"]
    if verdict["code"] in case.codes and case.says in verdict["sentence"]:
        return "right"
    found = (
        one["code"] in case.codes and case.says in one["sentence"] and one["severity"] != "info"
        for one in report["findings"]
    )
    return "second" if any(found) else "wrong"


def versions(folder: Path) -> Mapping[str, str]:
    site = next(folder.glob("lib/python*/site-packages"))
    return {one.metadata["Name"].lower().replace("_", "-"): one.version for one in distributions(path=[str(site)])}


HEADS = ["server", "SDK", "transport", "calls", "the fault by its source", "verdict", "so it is"]


def line(case: Case, client: Client, report: Mapping[str, Any], environments: Path) -> list[object]:
    installed = versions(environments / case.row.lock)
    sdk = [f"{name} {installed[name]}" for name in ("fastmcp", "mcp") if name in installed]
    verdict, others = report["verdict"], [one["code"] for one in report["findings"] if one["severity"] != "info"]
    also = "; also " + ", ".join(dict.fromkeys(others)) if others else ""
    return [
        f"{case.row.package} {installed[case.row.package]}",
        " on ".join(sdk),
        case.row.transport,
        f"{len(client.exchanges)}, {case.in_flight} at once",
        case.fault,
        f"`{verdict['code']}`: {verdict['sentence']}",
        f"{place(case, report)}{also}",
    ]


def row(
    package: str,
    lock: str,
    set_up: Callable[[Transport, int, Path], AbstractContextManager[Setting]],
    transport: Transport = "stdio",
    program: str = "",
) -> Row:
    return Row(package, f"field-{lock}", program or package, transport, False, "", set_up)


BLOCKED = ("blocking-call",)
COMPUTED = ("cpu-bound-step",)
HELD = BLOCKED + COMPUTED
HEALTHY = ("healthy",)

CASES = [
    Case(
        row("mcp-server-fetch", "fetch", servers.fetch("--allow-private-ips")),
        "an `AsyncClient` for each call (server.py:251), so a TLS context is made on the loop, and no connection kept",
        ("client-per-request", *HELD),
        pattern="q",
    ),
    Case(
        row("mcp-server-fetch", "fetch-mcp1", servers.fetch()),
        "an `AsyncClient` for each call (server.py:119), as above",
        ("client-per-request", *HELD),
        pattern="q",
    ),
    Case(
        row("mcp-server-fetch", "fetch", servers.fetch("--allow-private-ips")),
        "HTML is converted on the loop (server.py:177)",
        COMPUTED,
        "server.py:177",
    ),
    Case(
        row("cli-mcp-server", "cli", servers.commands),
        "`subprocess.run` on the loop (server.py:354, called at 484)",
        BLOCKED,
        "cli_mcp_server/server.py",
    ),
    Case(
        row("excel-mcp-server", "excel-fastmcp2", servers.excel_of_2025),
        "`load_workbook` on the loop (data.py:190)",
        HELD,
        "excel_mcp/",
        calls=40,
    ),
    Case(
        row("mcp-server-git", "git", servers.git),
        "one `threading.Lock` around every tool (server.py:453, 466)",
        ("serial-handler",),
    ),
    Case(
        row("mcp-server-git", "git-mcp1", servers.git),
        "GitPython reads commits and starts `git` on the loop (server.py:167, 381, 441)",
        HELD,
        "mcp_server_git/server.py",
    ),
    Case(
        row("mcp-server-motherduck", "motherduck", servers.motherduck_quick, "stateless HTTP"),
        "for each call with arguments the SDK has fastmcp list all tools (mcp/server/_streamable_http_modern.py:346)",
        ("schema-lookup",),
        pattern="q",
        calls=200,
    ),
    Case(
        row("mcp-atlassian", "atlassian", servers.atlassian()),
        "a `JiraFetcher` for each call (servers/dependencies.py:1044), so a TLS context is made on the loop",
        ("client-per-request", *HELD),
        "mcp_atlassian/",
        pattern="h",
    ),
    Case(
        row("mcp-atlassian", "atlassian", servers.atlassian(1.0)),
        "`CapacityLimiter(8)` around `jira_get_issue` of a second each (servers/async_utils.py:17, 46)",
        ("executor-saturated", "serial-handler"),
        pattern="h",
        calls=120,
        in_flight=20,
    ),
    Case(
        row("mcp-atlassian", "atlassian", servers.atlassian()),
        "`jira_get_link_types` sends requests on the loop (servers/jira.py:1694)",
        BLOCKED,
        "mcp_atlassian/",
        pattern="q",
        calls=60,
    ),
    Case(
        row("mcp-server-sqlite", "sqlite", servers.sqlite),
        "sqlite3 on the loop, a connection for each query (server.py:143, 149)",
        HELD,
        "mcp_server_sqlite/server.py",
    ),
    Case(
        row("redis-mcp-server", "redis", servers.redis),
        "redis-py's blocking client in an `async def` (tools/string.py:63)",
        BLOCKED,
        "tools/string.py",
        pattern="q",
        calls=60,
    ),
    Case(
        row("prometheus-mcp-server", "prometheus", servers.prometheus),
        "`requests.get` in an `async def`, without a session (server.py:223)",
        BLOCKED,
        "prometheus_mcp_server/server.py",
        pattern="h",
        calls=60,
    ),
    Case(
        row("mcp-server-docker", "docker", servers.docker),
        "docker-py's blocking client in an `async def` (server.py:454)",
        BLOCKED,
        "mcp_server_docker/server.py",
        pattern="h",
        calls=60,
    ),
    Case(
        row("mcp-server-calculator", "calculator", servers.calculator),
        "arithmetic without a bound on the loop (calculator.py:57)",
        COMPUTED,
        "calculator.py",
        calls=60,
    ),
    Case(
        row("office-word-mcp-server", "word-fastmcp2", servers.word, program="word_mcp_server"),
        "a document is parsed on the loop (utils/document_utils.py:48, 52)",
        HELD,
        "document_utils.py",
        calls=40,
    ),
    Case(
        row("markitdown-mcp", "markitdown", servers.markitdown),
        "a `MarkItDown` for each call, and the conversion, on the loop (__main__.py:22, 24)",
        HELD,
        "markitdown_mcp/__main__.py",
        calls=60,
    ),
    Case(
        row("mcp-alchemy", "alchemy", servers.alchemy),
        "a pool of at most three connections (server.py:30)",
        ("pool-exhausted",),
        "server.py:39",
        pattern="hhhqqq",
    ),
    Case(
        row("mcp-clickhouse", "clickhouse", servers.clickhouse),
        "a thread pool of ten for queries (executors.py:9), asked 24 times at once",
        ("executor-saturated",),
        pattern="h",
        calls=150,
        in_flight=24,
    ),
    Case(row("mcp-server-time", "time", servers.clock), "none", HEALTHY, calls=400),
    Case(row("mcp-server-time", "time-mcp1", servers.clock), "none", HEALTHY, calls=400),
    Case(row("mcp-shell-server", "shell", servers.shell), "none: asyncio's subprocesses", HEALTHY, calls=60),
    Case(
        row("elasticsearch-mcp-server", "elasticsearch", servers.elasticsearch),
        "none: one client, in threads",
        HEALTHY,
        pattern="q",
    ),
    Case(row("excel-mcp-server", "excel", servers.excel), "none: a small workbook, in threads", HEALTHY, pattern="q"),
    Case(
        row("mcp-alchemy", "alchemy", servers.alchemy),
        "none: as many quick queries at once as the pool has connections",
        HEALTHY,
        pattern="q",
        calls=200,
        in_flight=3,
    ),
]


def main() -> int:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    environments, words = Path(sys.argv[1]).absolute(), sys.argv[2:]
    lines, absent = [], []
    for case in CASES:
        if words and not any(word in case.name for word in words):
            continue
        try:
            client, report = run(case, environments)
        except Silent as reason:
            absent.append((case.name, reason))
            print(f"{case.name}: not run: {reason}", file=sys.stderr, flush=True)
            continue
        cells = line(case, client, report, environments)
        lines.append(cells)
        code, sentence = report["verdict"]["code"], report["verdict"]["sentence"]
        print(f"{case.name}: {place(case, report)}: {code}: {sentence}", file=sys.stderr, flush=True)
    print("\n".join(table(HEADS, lines)))
    if absent:
        print("\n".join(["", "Not run here:", "", *table(["server", "reason"], absent)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
