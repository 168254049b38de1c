"""Whatever stands for stdin is served as without the probe."""

from __future__ import annotations

from tests.harm.running import ONE_CORE, How, bare, told


@ONE_CORE
def test_any_stdin_is_served_as_without_the_probe(core: How) -> None:
    assert told("odd_stdin", core, timeout_s=150) == bare("odd_stdin")
