"""The page of workloads names each of them as the command does."""

from __future__ import annotations

from mcp_probe.workloads.bench.registry import DOCUMENTS, WORKLOADS
from tests.docs.test_docs import ROOT


def test_every_workload_stands_in_the_table_with_its_documents() -> None:
    text = (ROOT / "docs" / "bench.md").read_text("utf-8")
    rows = [f"| `{each.name}` | {', '.join(each.documents)} | {each.about} |" for each in WORKLOADS]
    assert [row for row in rows if row not in text] == []
    assert f"{len(WORKLOADS)} workloads, {len(DOCUMENTS)} documents and questions of none" in text
