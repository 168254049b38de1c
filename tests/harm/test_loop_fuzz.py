"""Random programs do the same on a followed loop as on a bare one.

The short run is part of the tests; ``make fuzz`` runs it for minutes, on each Python found (see fuzz.py).
"""

from __future__ import annotations

import pytest

from tests.harm.running import CORES, How, told

SHORT_S = "8"


@CORES
@pytest.mark.timeout(150)
def test_any_program_does_the_same_on_a_followed_loop(core: How) -> None:
    found = told("loop_fuzz", core, SHORT_S, "1", timeout_s=120)
    assert found["examples"] > 20
    assert found["differs"] is None, found["differs"]
