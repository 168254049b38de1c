"""Suites that nobody here wrote give the same outcomes with the probe in them."""

from __future__ import annotations

import pytest

from mcp_probe import native
from tests.suites.known import KNOWN
from tests.suites.upstream import SUITES, Bare, NotReady, compare, run, settled, unwatched


@pytest.mark.suites
@pytest.mark.timeout(1200)
@pytest.mark.skipif(native.core is None, reason=f"no accelerator: {native.absence}")
@pytest.mark.parametrize("name", ["mcp2", "asyncio"])
def test_a_suite_of_others_gives_the_same_outcomes_with_the_probe(name: str) -> None:
    suite = SUITES[name]
    try:
        probed = run(suite, "native")
        bare = Bare.kept(suite)
        if bare is None:
            one = run(suite, None)
            bare = Bare.from_runs(one, one)
        probed, _ = settled(suite, "native", bare, probed)
    except NotReady as why:
        pytest.skip(str(why))
    said = unwatched(suite, probed) + compare(bare, probed, KNOWN.get(name, {}))
    assert not said, f"{len(said)} differences ({probed.counts()}):\n" + "\n".join(said)
