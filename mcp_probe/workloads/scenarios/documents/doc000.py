"""Document 000, "MiniMCP Stdio Sequential vs Concurrent Transport Performance Analysis", 22 September 2025.

Python 3.10.18, macOS; five rounds, none thrown away; milliseconds, and MB of 2**20 bytes.
"""

from __future__ import annotations

from mcp_probe.workloads.bench.shapes import Asked, Claim

MESSAGES = (100, 1000, 3000, 10_000)
LARGE = 10_000
ROUNDS = 5
DIRECT_ROUNDS = 3

# Name and messages -> min, max, mean, standard deviation, median, interquartile range, operations per second.
RAW_FIGURES = ("min", "max", "mean", "sd", "median", "IQR")
RAW = {
    ("sequential", 100): (6.7433, 7.4667, 7.1641, 0.2810, 7.2247, 0.3979, 139.5855),
    ("concurrent", 100): (8.6177, 38.2866, 15.2786, 12.8940, 9.4994, 8.9338, 65.4510),
    ("sequential", 1000): (20.8382, 21.7560, 21.3280, 0.3365, 21.3282, 0.4064, 46.8868),
    ("concurrent", 1000): (41.3390, 45.1955, 42.6448, 1.4789, 42.2305, 1.1185, 23.4495),
    ("sequential", 3000): (51.9306, 52.6957, 52.3139, 0.2970, 52.2624, 0.4425, 19.1154),
    ("concurrent", 3000): (116.1879, 121.6039, 118.7198, 2.4352, 119.2752, 4.4047, 8.4232),
    ("sequential", 10_000): (161.3377, 162.9990, 162.0702, 0.8066, 161.6124, 1.4542, 6.1702),
    ("concurrent", 10_000): (398.5027, 429.7620, 408.9573, 12.0449, 405.3399, 9.4674, 2.4452),
    ("large load", 10_000): (564.0673, 566.3925, 565.2040, 1.1634, 565.1522, 1.7438, 1.7693),
}
MEDIAN_RATIO_100 = round(RAW["concurrent", 100][4] / RAW["sequential", 100][4], 2)

# Its tables have the same means and operations per second, with two digits.
MEAN_MS = {place: round(figures[2], 2) for place, figures in RAW.items()}
OPS = {place: round(figures[6], 2) for place, figures in RAW.items()}
TIME_RATIO = {100: 2.13, 1000: 2.00, 3000: 2.27, 10_000: 2.52}
SCALING = {"sequential": {1000: 2.98, 10_000: 22.6}, "concurrent": {1000: 2.79, 10_000: 26.8}}
RATIOS = (2.0, 2.52)

# Name and messages -> peak and mean.
MEMORY_MB = {
    **{("sequential", messages): (0.01, 0.01) for messages in MESSAGES},
    ("concurrent", 100): (0.58, 0.27),
    ("concurrent", 1000): (1.77, 1.72),
    ("concurrent", 3000): (5.46, 5.26),
    ("concurrent", 10_000): (18.33, 17.53),
}
MEMORY_RATIO = {100: 58, 1000: 177, 3000: 546, 10_000: 2061}
SAVED_PERCENT = {100: 98.3, 1000: 99.4, 3000: 99.8, 10_000: 99.95}
ONE_MB = 0.00841
"""The denominator that its 2061 = 17.33 MB / x has."""
KB_PER_MESSAGE = 1.83
DIRECT_TASKS_MB = 17.33
DIRECT_RATIO = 2061.0

# What follows from the tables: milliseconds before the first message, and microseconds of each further one.
FITS = {"sequential": (5.57, 15.65), "concurrent": (None, 40.7)}
OTHER_ROUNDS_MB = 0.19

CLAIMS = Claim.by_id(
    Claim(
        "000-1",
        "one by one is faster than a task per message, for a handler that never suspends",
        "2.0-2.5×",
        (Asked("times", RATIOS, "not"),),
        "CPU time, quickest rounds, every number of messages",
        why="tracemalloc and the loop's start inside the document's timer hide most of the difference",
    ),
    Claim(
        "000-2",
        "a hundred times the messages take 22.6 and 26.8 times as long, on a straight line",
        "22.6× one by one, 26.8× in tasks",
        (Asked("straight", load="not"), Asked("times", (22.6, 26.8))),
        "the line: CPU time of 1,000 messages and more; the factor: means, the document's timer",
    ),
    Claim(
        "000-2a",
        "so the time is in proportion to the number of messages",
        '"near-perfect linear scaling"',
        (Asked("same"),),
        "growth over that of the messages",
        why_not="it is a line, but not through zero: the document's timer takes milliseconds before the first message",
    ),
    Claim(
        "000-3",
        "one by one needs the same memory whatever the number of messages",
        "0.01 MB",
        (Asked("at most", load="not"),),
        "largest over smallest",
        why="no more than one message is there at a time: its coroutine is freed before the next one is made",
    ),
    Claim(
        "000-4",
        "a task per message needs memory in proportion to the messages",
        "1.83 KB a message",
        (
            Asked("same", load="not", what="10,000 over 1,000"),
            Asked("figure", (KB_PER_MESSAGE,), "not", "of a message, KB"),
        ),
        why="of a source that never suspends and no limit; a suspending source, a limit or eager tasks remove it",
    ),
    Claim(
        "000-5",
        "10,000 tasks need thousands of times the memory",
        "2061× (1833× by its own table)",
        (Asked("times", (DIRECT_RATIO,), "not"),),
        why="all tasks are made before the first has run, so all of them are there at once",
    ),
    Claim(
        "000-6",
        "ten times the messages, ten times the memory ratio",
        '58 → 177 → 546 → 2061×, "exponentially"',
        (Asked("times", (round(DIRECT_RATIO / 177, 2),), "not"),),
        "10,000 over 1,000 messages",
        why_holds="in proportion, not exponentially: the denominator is constant and the numerator linear",
    ),
    Claim(
        "000-7",
        "one by one is right for every CPU-bound MCP server",
        'sequential is "the clear winner", 2-2.5×',
        (Asked("times", RATIOS, "not"),),
        "throughput one by one over pipelined on a real stdio server, quickest rounds",
        why_not="client and server are two processes, so pipelined calls overlap with the client's own work",
    ),
    Claim(
        "000-8",
        "handlers that wait gain from concurrency",
        "recommended for I/O, not measured there",
        (Asked("more", load="down"),),
        "quickest rounds",
    ),
)
