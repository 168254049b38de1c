"""First calls that come at once, each of which loads the same model."""

from __future__ import annotations

from tests.field.cases.case import Facts, Row, Source
from tests.field.cases.playing import Start, answered, call, facts, stdio, took_s
from tools.field.first_screen import COLLECTOR, HELD, HOST, Truth, near

SOURCE = Source("lazy_model_stampede")
AT_ONCE = 8
ROUNDS = 38


def play(start: Start) -> Facts:
    """Eight first calls at once, then some three hundred quick ones by eight."""
    seconds = 1.0 if start.is_brief else 4.0
    with stdio(start, str(seconds)) as client:
        first = [call(client, "search", query="first") for _ in range(AT_ONCE)]
        answered(client, first, 30.0)
        later = []
        for _ in range(2 if start.is_brief else ROUNDS):
            later.append([call(client, "search", query="later") for _ in range(AT_ONCE)])
            answered(client, later[-1], 20.0)
        slow = sum(took >= seconds for took in took_s(first))
        return facts(paid=slow, later_s=min(took_s([one for some in later for one in some]), default=9.0))


TRUTH = Truth(
    cause="the first eight calls each load the model: 81 % of all waiting",
    account="time",
    named=(
        r"\bget_model\b",
        SOURCE.inside("get_model"),
        SOURCE.at("model = get_model()"),
        near(r"(?i:\bfirst\b[^.;]{0,20}\bcalls\b)", r"(?i:\bat once\b|\beach\b|\bconcurrent)"),
    ),
    mends=(r"\blifespan\b", r"\bat (?:the )?start\b", r"\bwarm", r"\bonce\b", r"\block\b", r"\bsingle.flight\b"),
    false_claims=(HOST, COLLECTOR, HELD),
)
ROWS = (
    Row(
        case="lazy_model_stampede",
        variant="",
        source="kubeflow/docs-agent#169",
        truth=TRUTH,
        play=play,
        shows_fault=lambda facts: facts["paid"] == AT_ONCE and facts["later_s"] < 0.5,
    ),
)
