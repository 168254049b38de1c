from __future__ import annotations

from pathlib import Path

from benchmarks.in_flight import Burst, Variant, text_of

CPU = {"loop": 1_234.0, "the probe's threads": 0.0}


def test_a_row_has_the_median_burst_and_the_range_of_its_rate() -> None:
    bursts = [Burst(10, per_s, 2 * per_s, CPU) for per_s in (100.0, 300.0, 200.0)]
    other = Variant("record", Path("elsewhere"))
    lines = text_of({64: {Variant("bare"): bursts, other: bursts[:1]}}).splitlines()
    assert lines[0] == "| in flight | answers/s | p50 ms | CPU µs: loop | CPU µs: the probe's threads |"
    assert lines[2] == "| 64: bare | 200 (100 … 300) | 400 | 1,234 | 0 |"
    assert lines[3].startswith("| 64: **`mcp-probe run`, recording**, the other tree | 100 (100 … 100) |")


def test_the_probe_comes_from_the_tree_that_is_measured() -> None:
    tree = Path("elsewhere")
    attached, recorded = (Variant(name, tree).command("folder") for name in ("attached", "record"))
    assert attached.env is not None and attached.env["PYTHONPATH"] == "elsewhere" and attached.args[-1] == "--attach"
    assert recorded.args[:3] == ["-m", "mcp_probe", "run"] and "--record" in recorded.args
    assert "--attach" not in Variant("bare").command("folder").args
