"""Document 004: the levels and the sample run of its sweep, and its tuning table, as printed."""

from __future__ import annotations

from collections.abc import Mapping

LEVELS = (
    *((10, 50), (50, 100), (100, 100), (200, 200), (500, 200)),
    *((500, 500), (1000, 500), (1000, 1000), (2000, 1000), (3000, 1000)),
)
"""Workers and connections of the default sweep."""

SWEEP: Mapping[tuple[int, int], Mapping[str, float]] = {
    (100, 100): {
        **{"requests": 45_231, "throughput": 1507.7, "mean": 6.51, "p50": 5.12, "p99": 15.23},
        **{"max": 89.12, "success": 100},
    },
    (500, 200): {
        **{"requests": 84_976, "throughput": 700.8, "mean": 709.82, "p50": 393.14, "p95": 1790.87, "p99": 6779.09},
        **{"max": 32687.63, "success": 100},
    },
    (1000, 500): {
        **{"requests": 59_282, "throughput": 464.3, "mean": 2109.22, "p50": 1128.15, "p99": 31836.61},
        **{"max": 44382.89, "success": 100},
    },
    (3000, 1000): {
        **{"requests": 40_812, "throughput": 252.0, "mean": 9835.22, "p50": 6518.99, "p99": 48333.05},
        **{"max": 100931.56, "success": 100},
    },
}
"""The sample run, as printed."""

# Expected load, connections, kept connections, the document's expected throughput: (lowest, as printed).
TUNED: tuple[tuple[str, int, int, int, float, str], ...] = (
    ("low (10-50)", 50, 100, 50, 1500, "~1,500+"),
    ("medium (50-200)", 200, 200, 100, 700, "~700-1,500"),
    ("high (200-500)", 500, 300, 150, 500, "~500-700"),
    ("very high (500+)", 1000, 500, 250, 300, "~300-500"),
)
