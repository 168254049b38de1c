"""Summaries and windows as one file of HTML, with its style, its script and the data of its drawings inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mcp_probe.aggregate import phrasing
from mcp_probe.model import BUDGET_PARTS, LOOP_OPERATION, Summary
from mcp_probe.report import figures
from mcp_probe.report.budget import PARTS
from mcp_probe.report.content import sections as content
from mcp_probe.report.figures import plural, quantity
from mcp_probe.report.page.charts import distributions, heat
from mcp_probe.report.page.document import Section, as_json, document, markup_of
from mcp_probe.report.page.levels import Level
from mcp_probe.report.page.markup import markup, plain, text_of
from mcp_probe.report.page.overview import overview
from mcp_probe.report.page.waterfalls import WHOLE_PARTS, Chosen, Waterfalls
from mcp_probe.report.page.window import Window

MOST_COLOURS = 10
MOST_POOLS = 4
MOST_POINTS = 512


TITLES = {
    "verdict": "Verdict",
    "window": "Window",
    "operations": "Operations",
    "waits": "Waits",
    "requests": "Requests",
    "memory": "Memory",
    "resources": "Pools and loop",
    "notes": "Notes",
}


def render(*processes: tuple[Summary, Window], cwd: str) -> str:
    """The page. Each window has taken the same frames in as the fold that its summary is of.

    Of several, the page begins with what there is, and shows one at a time.
    """
    summaries = [summary for summary, _ in processes]
    articles = [
        _article(number, summary, window, cwd, count=len(processes))
        for number, (summary, window) in enumerate(processes, 1)
    ]
    names = list(dict.fromkeys(summary.server.name or "unnamed server" for summary in summaries))
    body = overview(summaries) + "\n".join(html for html, _ in articles)
    return document(", ".join(names), body, articles[0][1], parts=("page",))


def _article(number: int, summary: Summary, window: Window, cwd: str, *, count: int) -> tuple[str, list[Section]]:
    """One process, all its ids with its number before them; those of the first have none."""
    data = page_data(summary, window, cwd=cwd)
    prefix = "" if number == 1 else f"{number}-"
    sections = [Section(name, TITLES[name], html) for name, html in _bodies(summary, window, data, cwd) if html]
    title = text_of(summary.server.name or "unnamed server")
    html = (
        f'<article data-prefix="{prefix}" aria-label="{title}"><h1 class="hidden">{title}</h1>\n'
        f"{markup_of(sections, prefix)}\n"
        f'<script type="application/json" class="data">{as_json(data)}</script></article>'
    )
    return html, sections


def _bodies(summary: Summary, window: Window, data: dict[str, Any], cwd: str) -> Iterator[tuple[str, str]]:
    found = {name: markup(blocks) for name, blocks in content(summary, cwd=cwd).items()}
    yield "verdict", found["header"] + found["verdict"] + found["findings"]
    yield "window", _window(summary, window, data)
    yield "operations", found["operations"] + distributions(summary, window)
    yield "waits", found["blocked-by"] + heat(summary) + found["slow-steps"] + found["awaits"]
    yield "requests", _requests(summary, data)
    yield "memory", found["memory"] + found["leaks"]
    yield "resources", found["executors"] + found["loop"] + found["measures"]
    yield "notes", found["notes"]


# --- data -----------------------------------------------------------------------------------------


def page_data(summary: Summary, window: Window, *, cwd: str) -> dict[str, Any]:
    """What the script draws: numbers, and texts that are safe to show as text."""
    chosen = Chosen(window)
    shown = set(chosen.records)
    pairs = [
        {"victim": victim, "blocker": blocker, "ids": [id for id in ids if id in shown]}
        for (victim, blocker), ids in chosen.pairs.items()
    ]
    used = [pool for pool in window.pools.values() if any(map(any, (pool[1].means(), pool[2].means())))]
    pools = sorted(used, key=lambda pool: -sum(pool[1].means()))[:MOST_POOLS]
    data: dict[str, Any] = _shown(
        {
            "ms": round((window.bins.end_ns - window.bins.start_ns) / 1e6, 3),
            "bin": window.bins.bin_ns / 1e6,
            "bins": window.bins.count,
            "loops": max(1, len(window.loops)),
            "occupancy": _occupancy(window),
            "flight": _scaled(window.in_flight, 100),
            "gc": _scaled(window.gc, 1000),
            "pools": [
                {
                    "name": sample.name,
                    "max": sample.max,
                    "running": _scaled(running, 100),
                    "waiting": _scaled(waiting, 100),
                }
                for sample, running, waiting in pools
            ],
            "resident": _resident(window),
            "parts": [*map(_part, BUDGET_PARTS), *map(_whole_part, WHOLE_PARTS)],
            "requests": Waterfalls(chosen, window.bins.start_ns, cwd).all(),
            "pairs": pairs,
            "missing": list(_missing(summary, window)),
        }
    )
    return data


def _shown(value: Any) -> Any:
    """All texts in ``value``, at any depth, with control characters as escapes."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(str(key)): _shown(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shown(item) for item in value]
    return value


def _scaled(level: Level, scale: int) -> list[int]:
    return [round(value * scale) for value in level.means()]


def _occupancy(window: Window) -> list[dict[str, Any]]:
    """Per mille of one loop, by operation, most first; those without a colour of their own are one."""
    levels = {name: level.means() for name, level in window.occupancy.items()}
    ranked = sorted(levels, key=lambda name: (name == LOOP_OPERATION, -sum(levels[name])))
    own = [name for name in ranked if name != LOOP_OPERATION]
    coloured, rest = own[: MOST_COLOURS - 1], own[MOST_COLOURS - 1 :]
    found = [{"name": name, "kind": "operation", "values": _milli([levels[name]])} for name in coloured]
    if rest:
        found.append({"name": plural(len(rest), "other"), "kind": "rest", "values": _milli([levels[n] for n in rest])})
    if LOOP_OPERATION in levels:
        values = _milli([levels[LOOP_OPERATION]])
        found.append({"name": "background work", "kind": "loop", "values": values})
    return found


def _milli(levels: Sequence[Sequence[float]]) -> list[int]:
    return [round(1000 * sum(values)) for values in zip(*levels, strict=True)]


def _resident(window: Window) -> list[tuple[float, int]]:
    points = window.resident[:: max(1, len(window.resident) // MOST_POINTS)]
    return [(round((at - window.bins.start_ns) / 1e6, 1), size) for at, size in points]


def _part(name: str) -> dict[str, str]:
    (part,) = (part for part in PARTS if name in part.fields)
    return {"name": name.replace("_", " "), "role": part.role, "meaning": part.meaning}


def _whole_part(name: str) -> dict[str, str]:
    """A part of which an ordinary recording does not know the fields one by one."""
    (part,) = (part for part in PARTS if name == part.name)
    return {"name": name, "role": part.role, "meaning": part.meaning}


# --- what the recording has not -------------------------------------------------------------------


def _missing(summary: Summary, window: Window) -> Iterator[str]:
    """Sentences on what the drawings leave out."""
    counts = summary.requests
    if window.is_sampled:
        yield (
            f"{phrasing.looked_at(counts)} Requests in flight are estimated from those that have a record. "
            "Counts and distributions are of all requests."
        )
    if counts.dropped:
        yield f"{plural(counts.dropped, 'request')} of this window were lost. They are in no drawing."
    if summary.probe.dropped_marks:
        yield f"{plural(summary.probe.dropped_marks, 'measurement')} of this window were lost."
    if not window.occupancy:
        yield "Nothing of the event loop was seen, so its occupancy is not known."
    elif window.bins.count > 1:
        yield "Steps shorter than 0.5 ms are spread evenly over about a second."
    if window.hidden_steps_ns:
        shortest = figures.fine_duration(window.hidden_steps_ns / 1e6)
        yield f"There are too many steps to draw each: in requests, those shorter than {shortest} may be missing."
    if open_at_end := len(window.never_ended()):
        yield f"{plural(open_at_end, 'request')} had not ended when the recording did: no record, so not drawn."
    if not summary.complete:
        yield "The recording stops without an end: up to its last second may be missing."


# --- sections that the script fills ---------------------------------------------------------------

_WITHOUT_SCRIPT = (
    "<noscript><p>Drawn by a script, which this browser does not run. All else on the page is text.</p></noscript>"
)


def _window(summary: Summary, window: Window, data: dict[str, Any]) -> str:
    if not data["ms"]:
        return ""
    notes = "".join(f"<li>{text_of(sentence)}</li>" for sentence in data["missing"])
    length, point = figures.duration(summary.window.seconds * 1000), figures.fine_duration(data["bin"])
    return (
        f"<h2>The window <small>{text_of(f'{length}; one point is {point}')}</small></h2>"
        '<div class="timeline"></div>' + _WITHOUT_SCRIPT + (f'<ul class="dim remarks">{notes}</ul>' if notes else "")
    )


def _requests(summary: Summary, data: dict[str, Any]) -> str:
    if not data["requests"]:
        return ""
    kept, whole = len(data["requests"]), summary.requests.count
    told = (
        f"Kept one by one: {quantity(kept)} of {quantity(max(kept, whole))}. They are the slowest, the slowest of each "
        "operation, those that waited longest for each other one, and those that they waited for."
    )
    return (
        f'<h2>The slowest requests <small>open one for what happened in it</small></h2><p class="dim">{told}</p>'
        '<div class="waterfalls"></div>' + _WITHOUT_SCRIPT
    )
