from __future__ import annotations

from tests.guard import detach_leaks, threads_that_stay


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


def test_threads_that_end_soon_are_waited_for() -> None:
    left = [2, 1, 0]
    assert threads_that_stay(lambda: left.pop(0)) is None
    assert left == []


def test_threads_that_stay_are_counted() -> None:
    assert threads_that_stay(lambda: 2, 0.0) == "2 thread(s) of a probe still run 0 s after it was detached."
