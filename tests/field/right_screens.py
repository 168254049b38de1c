"""A right first screen for each field case, in words of no report of today: each truth must be satisfiable by one."""

from __future__ import annotations

from tests.field.cases.case import Row, Source

CHILD = {
    "count": "run_sync(lambda: subprocess.run(SUM",
    "count_async": "create_subprocess_exec(*SUM",
    "count_anyio": "anyio.run_process(SUM",
    "count_sync": "return subprocess.run(SUM",
}


def right_screen(row: Row) -> str:
    """A report whose verdict names the cause of ``row``, its holder and a mend."""
    text, advice = _said(row, Source(row.case))
    lines = [f"│ ● {text} │", f"│ → {advice} │"]
    return "\n".join(["server · 100 requests", "", "╭─ Verdict ─ something · critical ─╮", *lines, "╰───╯", ""])


def _said(row: Row, source: Source) -> tuple[str, str]:
    def at(text: str) -> str:
        return f"server.py:{source.line(text)}"

    name = row.variant
    match row.case:
        case "open_sessions":
            return "501 sessions were opened and 0 closed: 45 kB stay for each.", "Give sessions an idle time-out."
        case "cancel_spin":
            return (
                "With nothing in flight `CancelScope._deliver_cancellation` ran 41,000 times a second, for a "
                "scope that `connect` entered.",
                "Enter and leave it in one task.",
            )
        case "child_reads_stdin":
            return (
                f"`{name}` starts `python` at {at(CHILD[name])}, which reads the server's stdin.",
                "Pass stdin=DEVNULL.",
            )
        case "orphan":
            return {
                "thread": ("The process stayed 5 s after its client: thread `indexer` runs.", "Make it a daemon."),
                "job": (
                    f"The process stayed 5 s after its client: a job of the executor is at {at('time.sleep(600)')}.",
                    "Give the job a stop event.",
                ),
                "spin": (
                    f"The process stayed 5 s after its client, on a CPU: {at('while True:  # keep')} runs after run().",
                    "Remove the loop.",
                ),
            }[name]
        case "descriptors":
            return (
                "`total` opened one more descriptor a call, up to the limit of 256; 52 calls failed.",
                f"Close what {at('self.connection = sqlite3.connect')} opens.",
            )
        case "loop_thread_deadlock":
            if name == "limiter":
                return (
                    f"Deadlock: 4 jobs of `gather` hold LIMIT; each waits for it at {at('from_thread.run(in_th')}.",
                    "Do not enter the same limiter twice: call it in the thread.",
                )
            return (
                f"Deadlock for 5 s: the loop stands at {at('helper.join()')}, and thread `rebuild` waits for the loop.",
                "Await it instead.",
            )
        case "token_verification":
            place = at(
                "keys = requests.get"
                if name == "sync"
                else "keys = await " + ("shared" if name == "shared" else "client")
            )
            return (
                f"92 % of the waiting: each POST stood in `verify_token` at {place}, before any tool.",
                "Cache tokens.",
            )
        case "rlock":
            return (
                f"`remember` stood at {at('return connection.execute')} for LOCK; thread `consolidator` held it.",
                "Do not hold the lock while it embeds.",
            )
        case "slow_start":
            what = "importing pandas and sklearn" if name == "imports" else "in `load_model`"
            return (
                f"The first answer came 5.6 s after the process began, 5.0 s of it {what}.",
                "Load it in the background.",
            )
        case "lazy_model_stampede":
            return (
                "8 calls of `search` each spent 4.0 s in `get_model`, 81 % of the waiting.",
                "Load it once, at start.",
            )
        case "module_list_leak":
            return f"`note` keeps 36 kB a call at {at('HISTORY.append')}.", "Bound the list."
        case "sleep_zero_poll":
            return f"`run_job` polls at {at('await asyncio.sleep(0)')}: 30,000 turns a second.", "Await an event."
    raise LookupError(row.name)
