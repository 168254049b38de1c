"""A tool that polls with sleep(0) until a timer has finished the job."""

from __future__ import annotations

from functools import partial

from tests.field.cases.case import Facts, Row, Source, quoted
from tests.field.cases.playing import Start, answered, busy_ratio, call, facts, server_pid, stdio, took_s, wanted_cpu_s
from tools.field.first_screen import Truth

SOURCE = Source("sleep_zero_poll")
JOBS = 40


def play(at_once: int, start: Start) -> Facts:
    """Forty jobs, so many at once, and a ping beside each round."""
    with stdio(start) as client:
        server = server_pid(start, client.process)
        waited, before = 0.0, wanted_cpu_s(server)
        for number in range((8 if start.is_brief else JOBS) // at_once):
            jobs = [call(client, "run_job", number=number) for _ in range(at_once)]
            answered(client, [*jobs, call(client, "ping")], 20.0)
            waited += max(took_s(jobs), default=0.0)
        return facts(busy_ratio=(wanted_cpu_s(server) - before) / waited, idle_ratio=busy_ratio(server, 0.5))


TRUTH = Truth(
    cause="`run_job` polls with sleep(0) for 150 ms: the event loop is 100 % busy with nothing",
    account="time",
    named=(SOURCE.at("while not done:", "await asyncio.sleep(0)"), r"\bsleep\(0\)", r"(?i:\bpoll)", r"(?i:\bspin)"),
    mends=(r"\bevent\b(?! loop)", r"\bfuture\b", r"\binstead of polling\b", r"\bawait what\b"),
    innocents=(quoted("ping"), SOURCE.inside("ping")),
    related=(SOURCE.inside("run_job"),),
)
ROWS = tuple(
    Row(
        case="sleep_zero_poll",
        variant=variant,
        source="python/asyncio#398",
        truth=TRUTH,
        play=partial(play, at_once),
        shows_fault=lambda facts: facts["busy_ratio"] > 0.6 and facts["idle_ratio"] < 0.3,
        is_slow=at_once > 1,
    )
    for variant, at_once in (("one at once", 1), ("four at once", 4))
)
