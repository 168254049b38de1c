"""Document 003's check values, to the byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcp_probe.workloads.models.urls import HOST, encoded_bytes, expected_bytes, paths, urls


def test_the_documented_totals_follow_from_a_host_of_twelve_characters() -> None:
    assert len(HOST) == 12
    assert expected_bytes(100_000) == 51_258_766
    assert expected_bytes(100_000, threads=10) == 51_145_360


@given(st.integers(0, 300), st.integers(1, 12))
def test_arithmetic_and_encoding_agree(count: int, threads: int) -> None:
    counted = sum(sum(map(encoded_bytes, urls(count // threads))) for _ in range(threads))
    assert expected_bytes(count, threads) == counted


def test_queries_double_seven_times_and_start_over() -> None:
    lengths = [len(path.partition("query=")[2]) for path in paths(9)]
    assert lengths == [26, 52, 104, 208, 416, 832, 1664, 26, 52]


def test_a_character_of_several_bytes_counts_as_such() -> None:
    assert encoded_bytes("aé€") == 1 + 2 + 3
