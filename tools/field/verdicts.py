"""`make verdicts`: the verdict on real servers whose fault their source shows, and on some that have none.

Somebody has read each server's source and written down where it loses its clients' time, or that it does not. The fault
stands beside the verdict in the table that this puts into docs/field-reports.md, with the reports that the page names;
with WORDs only the runs whose names hold one of them are made, and the table is printed.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Literal

from mcp_probe.aggregate.fold import Fold
from mcp_probe.record.file import read_recording
from mcp_probe.report.console import render
from tools.compatibility import table
from tools.field import __main__ as field
from tools.field import servers
from tools.field.client import Client, Silent
from tools.field.servers import Ask, Row, Setting, Transport
from tools.interpreters import ROOT

Place = Literal["right", "second", "busy machine", "wrong"]


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

    @property
    def kept(self) -> Path:
        """Where report, recording and stderr of its last run are."""
        return field.KEPT / "verdicts" / self.name.replace(" ", "-")


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
    kept = case.kept
    client, _ = field.drive(case.row, environments, kept, ask(case))
    failures = [f"{one.operation}: {one.failure[:200]}" for one in client.exchanges if one.failure]
    if len(failures) > len(client.exchanges) / 3:
        raise Silent(f"{len(failures)} calls fail: {failures[-1]}")
    return client, field.read_report(kept / "report.json")


def place(case: Case, report: Mapping[str, Any]) -> Place:
    """Whether the verdict is the fault; else whether a finding that is not `info` is; or it is about the machine."""
    verdict = report["verdict"]
    if verdict["code"] in case.codes and case.says in verdict["sentence"]:
        return "right"
    found = (
        one["code"] in case.codes and case.says in one["sentence"] and one["severity"] != "info"
        for one in report["findings"]
    )
    if any(found):
        return "second"
    return "busy machine" if case.codes == HEALTHY and verdict["code"] == "host-pressure" else "wrong"


def versions(folder: Path) -> Mapping[str, str]:
    site = next(folder.glob("lib/python*/site-packages"))
    return {one.metadata["Name"].lower().replace("_", "-"): one.version for one in distributions(path=[str(site)])}


HEADS = ["server", "SDK", "transport", "calls", "the fault by its source", "verdict", "so it is"]


def line(case: Case, client: Client, report: Mapping[str, Any], environments: Path) -> list[object]:
    installed = versions(environments / case.row.lock)
    sdk = [f"{name} {installed[name]}" for name in ("fastmcp", "mcp") if name in installed]
    verdict = report["verdict"]
    others = dict.fromkeys(one["code"] for one in report["findings"] if one["severity"] != "info")
    others.pop(verdict["code"], None)
    also = "; also " + ", ".join(others) if others else ""
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
    Case(
        row("excel-mcp-server", "excel-fastmcp2", servers.excel_of_2025, "HTTP"),
        "`load_workbook` on the loop (data.py:190), over HTTP",
        HELD,
        "excel_mcp/",
        calls=40,
    ),
    Case(
        row("office-word-mcp-server", "word-fastmcp2", servers.word, "HTTP", "word_mcp_server"),
        "a document is parsed on the loop (utils/document_utils.py:48, 52), over HTTP",
        HELD,
        "document_utils.py",
        calls=40,
    ),
    Case(
        row("opensearch-mcp-server-py", "opensearch", servers.opensearch),
        "a client for each call, made in a thread and closed at its end (opensearch/client.py:196, 202)",
        ("client-per-request", *HELD),
        pattern="q",
        calls=150,
    ),
    Case(
        row("opensearch-mcp-server-py", "opensearch", servers.opensearch, "HTTP"),
        "a client for each call, as above, over HTTP",
        ("client-per-request", *HELD),
        pattern="q",
        calls=150,
    ),
    Case(
        row("mcp-graphql", "graphql", servers.graphql(9)),
        "each call builds and checks a query for all fields, five deep, on the loop (server.py:509, 512, 516)",
        COMPUTED,
        "mcp_graphql/server.py",
        pattern="h",
        calls=100,
    ),
    Case(row("mcp-server-time", "time", servers.clock), "none", HEALTHY, calls=1500),
    Case(row("mcp-server-time", "time-mcp1", servers.clock), "none", HEALTHY, calls=1500),
    Case(
        row("awslabs.openapi-mcp-server", "openapi", servers.openapi),
        "none: one client (utils/http_client.py:138), awaited",
        HEALTHY,
        pattern="q",
        calls=150,
    ),
    Case(
        row("elasticsearch-mcp-server", "elasticsearch", servers.elasticsearch, "HTTP"),
        "none: one client, in threads, over HTTP",
        HEALTHY,
        pattern="q",
        calls=150,
    ),
    Case(row("mcp-shell-server", "shell", servers.shell), "none: asyncio's subprocesses", HEALTHY, calls=60),
    Case(
        row("elasticsearch-mcp-server", "elasticsearch", servers.elasticsearch),
        "none: one client, in threads",
        HEALTHY,
        pattern="q",
    ),
    Case(
        row("excel-mcp-server", "excel", servers.excel),
        "none: a small workbook, in threads",
        HEALTHY,
        pattern="q",
        calls=300,
    ),
    Case(
        row("mcp-alchemy", "alchemy", servers.alchemy),
        "none: as many quick queries at once as the pool has connections",
        HEALTHY,
        pattern="q",
        calls=1000,
        in_flight=3,
    ),
]


PAGE = ROOT / "docs" / "field-reports.md"
BETWEEN = re.compile(r"(?<=<!-- verdicts:begin -->\n\n).*?(?=\n\n<!-- verdicts:end -->)", re.S)


REPORT = re.compile(r"(<!-- verdict of: (?P<name>[^>]+) -->\n+```text\n).*?^```$", re.M | re.S)
WIDTH = 100


def rendered(block: re.Match[str]) -> str:
    """The block with the report of the last run that it names."""
    kept = next(case.kept for case in CASES if case.name == block["name"])
    fold = Fold()
    for frame in read_recording(kept / "recording"):
        fold.add(frame)
    return f"{block[1]}{render(fold.summary(), width=WIDTH, color=False, ascii_only=False)}```"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.field.verdicts", description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", metavar="WORD", help="run only what has one of these in its name")
    parser.add_argument(
        "--environments", type=Path, default=ROOT / ".envs", help="one for each requirements/field-*.txt"
    )
    chosen = parser.parse_args()
    lines, absent = [], []
    for case in CASES:
        if chosen.words and not any(word in case.name for word in chosen.words):
            continue
        try:
            client, report = run(case, chosen.environments.absolute())
        except Silent as reason:
            absent.append((case.name, reason))
            print(f"{case.name}: not run: {reason}", flush=True)
            continue
        lines.append(line(case, client, report, chosen.environments))
        code, sentence = report["verdict"]["code"], report["verdict"]["sentence"]
        print(f"{case.name}: {place(case, report)}: {code}: {sentence}", flush=True)
    text = "\n".join(table(HEADS, lines))
    if absent:
        text += "\n".join(["", "", "Not run here:", "", *table(["server", "reason"], absent)])
    if chosen.words:
        print(text)
    else:
        page = BETWEEN.sub(lambda _: text, PAGE.read_text("utf-8"))
        PAGE.write_text(REPORT.sub(rendered, page), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
