"""The garbage collector is as it was after a compilation, however that ends."""

from __future__ import annotations

import gc

import pytest

from torq_byoc.compilation.collector import no_cycle_collection


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_comes_back_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ValueError, match="inside"), no_cycle_collection():
            assert not gc.isenabled()
            raise ValueError("inside")
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
