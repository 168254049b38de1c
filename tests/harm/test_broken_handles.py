"""What a handle lost or was given raises as without the probe, and never ends the process."""

from __future__ import annotations

from tests.harm.running import CORES, How, bare, told


@CORES
def test_a_handle_without_a_slot_raises_as_without_the_probe(core: How) -> None:
    found, expected = told("broken_handles", core, timeout_s=200), bare("broken_handles")
    assert {case: said for case, said in found.items() if said != expected[case]} == {}
    assert found.keys() == expected.keys()
