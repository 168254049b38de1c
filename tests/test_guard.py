from __future__ import annotations

from tests.guard import detach_leaks


class FakeProbe:
    def __init__(self, name: str) -> None:
        self.name = name
        self.is_attached = True

    def __repr__(self) -> str:
        return f"<FakeProbe {self.name}>"

    def detach(self) -> None:
        self.is_attached = False


def test_nothing_attached_is_no_complaint() -> None:
    assert detach_leaks(()) is None


def test_every_leaked_probe_is_named_and_detached() -> None:
    leaks = [FakeProbe("one"), FakeProbe("two")]
    sentence = detach_leaks(leaks)
    assert sentence is not None
    assert sentence.startswith("2 probe(s) still attached: <FakeProbe one>, <FakeProbe two>.")
    assert not any(leak.is_attached for leak in leaks)
