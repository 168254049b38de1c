"""Document 003: three CPU-bound tables and nine I/O-bound ones, as printed; 1 KB is 1 000 bytes there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

CORES = 4
CPU_URLS = 100_000

CPU_BOUND: Mapping[str, Mapping[str, float]] = {
    "sync": {
        "time": 9.77,
        "bytes": 51_258_766,
        "CPU": 95.01,
        "CPU max": 104.2,
        "system CPU": 24.67,
        "system CPU max": 28.5,
        "memory": 15.79,
    },
    "asyncio": {
        "time": 9.78,
        "bytes": 51_258_766,
        "CPU": 95.89,
        "CPU max": 102.6,
        "system CPU": 24.47,
        "system CPU max": 26.8,
        "memory": 22.72,
    },
    "10 threads": {
        "time": 12.35,
        "bytes": 51_145_360,
        "CPU": 109.59,
        "CPU max": 172.1,
        "system CPU": 27.03,
        "system CPU max": 27.9,
        "memory": 16.01,
    },
}

IO_METRICS: Mapping[str, tuple[str, str]] = {
    "time": ("s", "execution time"),
    "downloaded": ("bytes", "downloaded"),
    "download speed": ("KB/s", "download speed"),
    "uploaded": ("bytes", "uploaded"),
    "upload speed": ("KB/s", "upload speed"),
    "written": ("bytes", "written to file"),
    "failures": ("requests", "failed requests"),
    "CPU": ("%", "CPU, process, mean"),
    "CPU max": ("%", "CPU, process, maximum"),
    "system CPU": ("%", "CPU, system, mean"),
    "system CPU max": ("%", "CPU, system, maximum"),
    "memory": ("MB", "memory, mean"),
    "memory max": ("MB", "memory, maximum"),
}

CHARTS: Mapping[str, tuple[str, str]] = {
    "CPU": ("CPU usage", "process"),
    "system CPU": ("CPU usage", "system"),
    "CPU max": ("CPU usage, maximum", "process"),
    "system CPU max": ("CPU usage, maximum", "system"),
}
"""Metrics that the document plots together: their common name, and the name of each."""


@dataclass(frozen=True, slots=True)
class IoTable:
    """One table. ``concurrency``: the requests it could have in flight; ``x``: its place in the plots."""

    label: str
    x: str
    urls: int
    concurrency: int
    figures: Mapping[str, float]


def _table(label: str, x: str, urls: int, concurrency: int, *values: float | None) -> IoTable:
    figures = {metric: value for metric, value in zip(IO_METRICS, values, strict=True) if value is not None}
    return IoTable(label, x, urls, concurrency, figures)


IO_BOUND: Mapping[str, IoTable] = {
    "sync 100": _table(
        "sync, 100 URLs",
        "sync 100",
        100,
        1,
        *(18.16, 537_368, 29.58, 146_011, 8.04, 143_002, 0, 2.91, 6.0, 7.70, 34.7, 30.36, None),
    ),
    "sync": _table(
        "sync",
        "sync",
        1_000,
        1,
        *(182.84, 5_146_743, 28.15, 1_502_356, 8.22, 1_445_934, 0, 2.94, 7.9, 6.38, 61.0, 30.45, None),
    ),
    "asyncio": _table(
        "asyncio",
        "asyncio",
        10_000,
        1_000,
        *(14.08, 20_201_259, 1_435.17, 11_514_625, 818.04, 14_187_346, 6, 67.53, 102.5, 29.96, 86.6, 120.26, 130.68),
    ),
    "asyncio 100000": _table(
        "asyncio, 100 000 URLs",
        "asyncio 100k",
        100_000,
        1_000,
        *(117.47, 193_544_856, 1_647.62, 105_035_999, 894.16, 141_734_263, 197),
        *(83.56, 104.6, 32.03, 92.1, 763.79, 837.23),
    ),
    "100 threads": _table(
        "100 threads",
        "100 threads",
        10_000,
        100,
        *(50.01, 21_417_924, 428.25, 12_169_682, 243.33, 14_490_182, 0, 111.19, 123.0, 35.90, 75.9, 51.02, 52.90),
    ),
    "1000 threads": _table(
        "1 000 threads",
        "1k threads",
        10_000,
        1_000,
        *(61.63, 25_163_978, 408.28, 17_453_941, 283.19, 13_788_400, 465, 121.20, 196.3, 44.15, 81.6, 118.37, 147.84),
    ),
    "hybrid 10": _table(
        "hybrid, 10 threads",
        "hybrid 10",
        10_000,
        1_000,
        *(14.96, 21_448_856, 1_434.11, 12_167_664, 813.55, 14_164_960, 14, 109.50, 148.0, 38.54, 70.1, 131.87, 155.31),
    ),
    "hybrid 100": _table(
        "hybrid, 100 threads",
        "hybrid 100",
        10_000,
        1_000,
        *(27.40, 18_695_887, 682.34, 12_749_017, 465.30, 13_195_640, 721, 131.71, 194.8, 56.44, 95.8, 152.60, 164.66),
    ),
    "hybrid 1000": _table(
        "hybrid, 1 000 threads",
        "hybrid 1k",
        10_000,
        1_000,
        *(33.20, 11_686_419, 352.03, 7_690_232, 231.65, 6_197_840, 5_629, 150.87, 169.2, 67.54, 85.8, 170.54, 176.06),
    ),
}
