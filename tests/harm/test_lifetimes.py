"""Nothing lives longer with the probe than without it."""

from __future__ import annotations

from tests.harm.running import CORES, How, bare, told


@CORES
def test_nothing_lives_longer_than_without_the_probe(core: How) -> None:
    assert told("lifetimes", core) == bare("lifetimes")
