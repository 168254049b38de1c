"""The screen of `mcp-probe top`, by Textual: keys only. What it shows is made in ``text``.

The only module that needs Textual; ``command`` imports it when the screen is asked for.

Source: Textual 8.2, docs/api/app and docs/guide/input.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import events, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Footer, Input, Static

from mcp_probe.errors import LiveError
from mcp_probe.now import Detail
from mcp_probe.report.blocks import Role, Span, Spans
from mcp_probe.report.layout import width_of
from mcp_probe.report.places import working_directory
from mcp_probe.report.theme import STYLES, glyphs
from mcp_probe.top.servers import nobody
from mcp_probe.top.text import SORTS, Drawn, Look, Sort, chosen, detail_lines, screen
from mcp_probe.top.watching import FIND_EVERY_S, Fleet, Watching
from mcp_probe.top.why import by_id

if TYPE_CHECKING:
    from mcp_probe.now import RequestNow, Snapshot

DRAW_EVERY_S = 0.25
NARROWEST = 60


def watch(pid: int | None, color: bool | None = None) -> None:
    """Show live servers until somebody quits. Raises: LiveError where the server with this ``pid`` is not live."""
    if color is False:
        os.environ.setdefault("NO_COLOR", "1")
    fleet = Fleet(pid)
    fleet.refresh()
    if not fleet.servers and (fleet.problems or pid is not None):
        assert fleet.found is not None
        raise LiveError(" ".join(fleet.problems.values()) or f"Process {pid} is not live. {nobody(fleet.found)}")
    try:
        TopApp(fleet).run()
    finally:
        fleet.close()


class TopApp(App[None]):
    """One server at a time; the others are a Tab away."""

    CSS = """
    Screen { layout: vertical; }
    #scroll { height: 1fr; scrollbar-size-vertical: 1; overflow-y: hidden; overflow-x: hidden; }
    #scroll.opened { overflow-y: auto; }
    #screen { width: 100%; height: auto; }
    #filter { height: 1; border: none; padding: 0; display: none; }
    #filter.shown { display: block; }
    """
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("s", "sort", "sort"),
        Binding("p,space", "pause", "pause"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("enter", "open", "open", priority=False),
        Binding("tab", "switch(1)", "server", priority=True),
        Binding("shift+tab", "switch(-1)", show=False, priority=True),
        Binding("d", "dump", "dump"),
        Binding("escape", "leave", "back", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "move(-10)", show=False),
        Binding("pagedown", "move(10)", show=False),
        Binding("home", "move(-100000)", show=False),
        Binding("end", "move(100000)", show=False),
    ]

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(ansi_color=True)
        self._fleet = fleet
        self._at = 0
        self._sort: Sort = "age"
        self._filter = ""
        self._selected: int | None = None
        self._opened: int | None = None
        self._seen: RequestNow | None = None  # the opened one, as it was in the table
        self._paused: Snapshot | None = None
        self._rows: tuple[tuple[int, int], ...] = ()
        self._cwd = working_directory()
        self._glyphs = glyphs(color=True, ascii_only=False)

    def compose(self) -> ComposeResult:
        """One text, one line for the filter, one for the keys."""
        with VerticalScroll(id="scroll", can_focus=False):
            yield Static(id="screen")
        yield Input(id="filter", placeholder="tool, state, lock, #id; Enter keeps it, Escape clears it")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Look for servers from now on."""
        self.set_interval(DRAW_EVERY_S, self.draw)
        self.set_interval(FIND_EVERY_S, self.find)
        self.call_after_refresh(self.draw)  # before, nothing has a size

    @work(thread=True, exclusive=True, exit_on_error=False)
    def find(self) -> None:
        """Servers come and go."""
        self._fleet.refresh()

    @property
    def server(self) -> Watching | None:
        """Whose turn it is."""
        servers = self._fleet.servers
        return servers[self._at % len(servers)] if servers else None

    def draw(self) -> None:
        """Show what is known now."""
        if not self.query("#screen") or not self.query("#scroll"):  # a timer's last call, as it ends
            return
        area = self.query_one("#screen", Static)
        width, height = max(NARROWEST, self.size.width), max(8, self.query_one("#scroll").size.height)
        server = self.server
        snapshot = None if server is None else self._paused or server.snapshot
        if server is None or snapshot is None:
            area.update(self._nothing(server))
            return
        look = self._look(server, width, height)
        if self._opened is not None:
            area.update(self._painted(self._detail(server, snapshot, replace(look, width=width - 1)), ()))
            return
        drawn: Drawn = screen(snapshot, look, self._glyphs)
        self._rows = drawn.rows
        area.update(self._painted(drawn.lines, drawn.rows))

    def _look(self, server: Watching, width: int, height: int) -> Look:
        servers = self._fleet.servers
        silent_s = server.silent_s
        return Look(
            width=width,
            height=height,
            sort=self._sort,
            filter=self._filter,
            selected=self._selected,
            cwd=self._cwd,
            place=(self._at % len(servers) + 1, len(servers)),
            paused=self._paused is not None,
            silent_s=silent_s,
            silent_why=server.silent_why if silent_s is not None else "",
            ended=server.ended,
            message=server.message,
        )

    def _nothing(self, server: Watching | None) -> Content:
        if server is not None:
            why = server.ended or (server.silent_why if server.silent_s is not None else "it has not answered yet")
            return Content(f"{server.name}, process {server.pid}: {why}")
        found = self._fleet.found
        lines = [*self._fleet.problems.values(), nobody(found) if found is not None and not found.paths else ""]
        return Content(
            "\n".join(line for line in lines if line) + "\n\nServers that start now appear here by themselves."
        )

    def _detail(self, server: Watching, snapshot: Snapshot, look: Look) -> Sequence[Spans]:
        """What has come of the opened request; until then, or if it ended before, what the table knew of it."""
        detail = server.detail or (None if self._seen is None else Detail(self._seen, ()))
        lines = () if detail is None else detail_lines(detail, snapshot, look, self._glyphs)
        return lines if not server.detail_gone else (*detail_ended(with_stacks=server.detail is not None), *lines)

    def _painted(self, lines: Sequence[Spans], rows: Sequence[tuple[int, int]]) -> Content:
        selected = next((line for line, number in rows if number == self._selected), None)
        parts: list[tuple[str, str]] = []
        for at, line in enumerate(lines):
            turned = " reverse" if at == selected else ""
            parts += [(span.text, f"{_style_of(span.role)}{turned}".strip()) for span in line]
            if turned:
                parts.append((" " * max(0, self.size.width - width_of(line)), "reverse"))
            parts.append(("\n", ""))
        return Content.assemble(*parts)

    # --- keys ---

    def action_sort(self) -> None:
        """The next order."""
        self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
        self.draw()

    def action_pause(self) -> None:
        """Keep what is shown, or go on."""
        server = self.server
        self._paused = None if self._paused is not None or server is None else server.snapshot
        self.draw()

    def action_filter(self) -> None:
        """Ask for words."""
        field = self.query_one("#filter", Input)
        field.add_class("shown")
        field.focus()

    def action_open(self) -> None:
        """One request, with its stacks."""
        server, numbers = self.server, [number for _, number in self._rows]
        if server is not None and numbers and self._opened is None:
            number = self._selected if self._selected in numbers else numbers[0]
            snapshot = self._paused or server.snapshot
            self._seen = None if snapshot is None else by_id(snapshot).get(number)
            self._opened = self._selected = number
            self.query_one("#scroll").add_class("opened")
            server.open(number)
            self.draw()

    def action_leave(self) -> None:
        """Out of a request, or of the filter."""
        field = self.query_one("#filter", Input)
        if field.has_class("shown") or self._filter:
            self._filter = field.value = ""
            field.remove_class("shown")
            self.set_focus(None)
        self._close()
        self.draw()

    def _close(self) -> None:
        if self._opened is not None and self.server is not None:
            self.server.open(None)
        self._opened = self._seen = None
        scroll = self.query_one("#scroll", VerticalScroll)
        scroll.remove_class("opened")
        scroll.scroll_home(animate=False)

    def action_switch(self, step: int) -> None:
        """The next server."""
        self._close()
        self._paused = self._selected = None
        self._at = (self._at + step) % max(1, len(self._fleet.servers))
        self.draw()

    def action_dump(self) -> None:
        """Have the last seconds written."""
        if self.server is not None:
            self.server.dump()

    def action_move(self, step: int) -> None:
        """Select another request; in an opened one, scroll."""
        if self._opened is not None:
            self.query_one("#scroll", VerticalScroll).scroll_relative(y=step, animate=False)
            return
        numbers = [request.id for request in self._requests()]
        if numbers:
            at = numbers.index(self._selected) + step if self._selected in numbers else max(0, step - 1)
            self._selected = numbers[max(0, min(len(numbers) - 1, at))]
        self.draw()

    def _requests(self) -> list[RequestNow]:
        server = self.server
        snapshot = None if server is None else self._paused or server.snapshot
        return [] if snapshot is None else chosen(snapshot, Look(80, sort=self._sort, filter=self._filter))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter as somebody types."""
        self._filter = event.value
        self.draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the words."""
        event.input.remove_class("shown")
        self.set_focus(None)

    def on_click(self, event: events.Click) -> None:
        """A click selects a request; a second one opens it."""
        number = dict(self._rows).get(event.screen_y)
        if number is not None and self._opened is None:
            if number == self._selected:
                self.action_open()
            else:
                self._selected = number
                self.draw()

    def on_resize(self) -> None:
        """As much as fits."""
        self.call_after_refresh(self.draw)


def detail_ended(*, with_stacks: bool) -> tuple[Spans, ...]:
    """What stands above a request that has ended while somebody looked at it."""
    ended = (Span("ENDED ", "warn"), Span("this request is not in flight any more; Escape goes back."))
    return (ended,) if with_stacks else (ended, (Span("It ended before its stacks were read. Last seen:", "dim"),))


def _style_of(role: Role) -> str:
    style = STYLES[role]
    color = "" if style.rgb is None else "#{:02x}{:02x}{:02x}".format(*style.rgb)
    return " ".join(part for part in ("bold" if style.bold else "", color) if part)
