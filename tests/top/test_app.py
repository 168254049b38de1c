"""Keys of the screen, by Textual's own pilot, on servers that are only snapshots."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mcp_probe.now import Detail, Line, Snapshot, TaskNow
from mcp_probe.top.servers import Found
from mcp_probe.top.watching import Fleet, Watching
from tests.live.snapshots import BLOCKED, DEADLOCK, SERVER

pytest.importorskip("textual")

from textual.widgets import Static

from mcp_probe.top.app import TopApp


class Shown(Watching):
    """A server that answers at once, without a process."""

    def __init__(self, name: str, snapshot: Snapshot) -> None:
        self.path, self.pid, self.name = Path(f"/run/{name}.sock"), 4711, name
        self.snapshot = replace(snapshot, server=replace(SERVER, name=name))
        self.detail: Detail | None = None
        self.detail_gone = False
        self.ended: str | None = None
        self.message = ""
        self.changes = 0
        self.opened: list[int | None] = []
        self.dumped = 0
        self.late_s: float | None = None

    @property
    def silent_s(self) -> float | None:
        return self.late_s

    def open(self, number: int | None) -> None:
        self.opened.append(number)
        if number is None:
            self.detail = None
            return
        request = next(one for one in (self.snapshot or DEADLOCK).requests if one.id == number)
        stack = tuple(Line("/srv/app/notes.py", line, "append_note", True) for line in range(1, 60))
        self.detail = Detail(request, (TaskNow("handler append_note", "suspended", 3.0, stack),))

    def dump(self) -> None:
        self.dumped += 1
        self.message = "written: /tmp/flight.jsonl"

    def close(self) -> None:
        pass


class Servers(Fleet):
    def __init__(self, *servers: Watching) -> None:
        super().__init__(look=lambda: Found((), (Path("/run/user/0/mcp-probe"),), ()))
        self.servers = servers
        self.found = Found((), (Path("/run/user/0/mcp-probe"),), ())

    def refresh(self) -> None:
        pass


def text_of(app: TopApp) -> str:
    return str(app.query_one("#screen", Static).content)


def lines_of(app: TopApp) -> list[str]:
    return text_of(app).splitlines()


async def test_keys_select_sort_pause_and_switch() -> None:
    notes, thumbs = Shown("notes", DEADLOCK), Shown("thumbs", BLOCKED)
    app = TopApp(Servers(notes, thumbs))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert lines_of(app)[0].startswith("notes (1 of 2) · process 4711")
        await pilot.press("down")
        assert "append_note #5 has waited" in text_of(app)
        await pilot.press("down", "j")
        assert "append_note #3 has slept" in text_of(app)
        await pilot.press("k", "home")
        assert "append_note #5 has waited" in text_of(app)

        await pilot.press("p")
        notes.snapshot = BLOCKED
        app.draw()
        assert "PAUSED" in text_of(app)
        assert "resize" not in text_of(app)
        await pilot.press("space")
        assert "PAUSED" not in text_of(app)
        assert "resize" in text_of(app)

        await pilot.press("tab")
        assert lines_of(app)[0].startswith("thumbs (2 of 2) · process 4711")
        ages = text_of(app)
        assert ages.index(" 5 resize") < ages.index(" 6 search")  # who holds the loop comes first
        await pilot.press("s")
        assert text_of(app).index(" 6 search") < text_of(app).index(" 5 resize")  # by state
        await pilot.press("shift+tab")
        assert lines_of(app)[0].startswith("notes")
        await pilot.press("q")
    assert app.return_code == 0


async def test_a_request_opens_scrolls_and_closes() -> None:
    notes = Shown("notes", DEADLOCK)
    app = TopApp(Servers(notes))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("down", "down", "enter")
        await pilot.pause()
        assert notes.opened == [4]
        assert "handler append_note" in text_of(app)
        scroll = app.query_one("#scroll")
        await pilot.press("pagedown")
        await pilot.pause()
        assert scroll.scroll_y > 0
        notes.detail_gone = True
        app.draw()
        assert "this request is not in flight any more" in text_of(app)
        await pilot.press("escape")
        assert notes.opened == [4, None]
        assert "IN FLIGHT 3" in text_of(app)


async def test_a_request_that_ended_before_its_stacks_were_read_is_shown_as_last_seen() -> None:
    class Ended(Shown):
        def open(self, number: int | None) -> None:
            self.opened.append(number)
            self.detail_gone = True

    notes = Ended("notes", DEADLOCK)
    app = TopApp(Servers(notes))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("down", "down", "enter")
        await pilot.pause()
        shown = text_of(app)
        assert "not in flight any more" in shown
        assert "ended before its stacks were read" in shown
        assert "append_note #4" in shown
        await pilot.press("escape")
        assert notes.snapshot is not None
        others = tuple(one for one in notes.snapshot.requests if one.id != 4)
        notes.snapshot = replace(notes.snapshot, requests=others)
        app.draw()
        await pilot.press("enter")  # what was selected is gone: the first one of the table
        assert notes.opened[:2] == [4, None]
        assert notes.opened[2] in {one.id for one in others}


async def test_a_filter_is_typed_kept_and_cleared() -> None:
    app = TopApp(Servers(Shown("notes", DEADLOCK)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("slash", *"lock", "q", "backspace")
        assert "2 match “lock”" in text_of(app)
        await pilot.press("enter")
        await pilot.press("s")  # a key again, and no letter
        assert "2 match “lock”" in text_of(app)
        await pilot.press("escape")
        assert "match" not in text_of(app)


async def test_a_click_selects_and_a_second_one_opens() -> None:
    notes = Shown("notes", DEADLOCK)
    app = TopApp(Servers(notes))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        line = next(at for at, text in enumerate(lines_of(app)) if text.startswith(" 4 append_note"))
        await pilot.click("#screen", offset=(5, line))
        assert "append_note #4 has waited" in text_of(app)
        await pilot.click("#screen", offset=(5, line))
        assert notes.opened == [4]


async def test_a_flight_recording_is_asked_for_and_told() -> None:
    notes = Shown("notes", DEADLOCK)
    app = TopApp(Servers(notes))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("d")
        app.draw()
        assert notes.dumped == 1
        assert "written: /tmp/flight.jsonl" in text_of(app)


async def test_a_server_that_ends_or_is_silent_is_said_to() -> None:
    notes = Shown("notes", DEADLOCK)
    app = TopApp(Servers(notes))
    async with app.run_test(size=(80, 24)) as pilot:
        notes.late_s = 4.0
        app.draw()
        assert "SILENT no answer for 4.00 s" in text_of(app)
        notes.late_s, notes.ended = None, "its process ends"
        app.draw()
        assert "ENDED its process ends. This is what it did last." in text_of(app)
        assert "append_note" in text_of(app)
        await pilot.press("enter", "escape", "tab")


async def test_without_a_server_it_says_what_to_do_and_shows_the_first_one_that_comes() -> None:
    fleet = Servers()
    app = TopApp(fleet)
    async with app.run_test(size=(80, 24)) as pilot:
        for key in ("enter", "down", "d", "s", "p", "tab", "slash", "escape"):
            await pilot.press(key)
        assert "mcp-probe run --live -- python server.py" in text_of(app)
        fleet.servers = (Shown("notes", DEADLOCK),)
        app.draw()
        assert "IN FLIGHT 3" in text_of(app)


@pytest.mark.parametrize("size", [(60, 10), (80, 24), (200, 60)])
async def test_it_fits_its_terminal(size: tuple[int, int]) -> None:
    app = TopApp(Servers(Shown("notes", DEADLOCK)))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        assert len(lines_of(app)) <= size[1] - 1
        assert max(map(len, lines_of(app))) <= size[0]
