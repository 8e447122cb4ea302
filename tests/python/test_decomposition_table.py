"""The table of decompositions (python/zefuse/decompositions/table.py), which a process's first compilation makes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from zefuse.decompositions import table


def test_no_library_of_the_process_is_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """For composite operators: some 0.05 s."""
    from torch.export import decomp_utils

    def looked(*_: Any) -> Any:
        raise AssertionError("all libraries were looked through")

    monkeypatch.setattr(decomp_utils, "_collect_all_valid_cia_ops", looked)
    table._table.cache_clear()
    assert torch.ops.aten.addcmul_.default in table.decompositions()


def test_composite_operators_of_others_take_themselves_apart() -> None:
    library = torch.library.Library("composites_of_others", "DEF")
    library.define("twice_sine(Tensor x) -> Tensor")
    library.impl("twice_sine", lambda x: torch.addcmul(x.sin(), x.sin(), torch.ones(())), "CompositeImplicitAutograd")
    compiled = torch.compile(torch.ops.composites_of_others.twice_sine, backend="zefuse", options={"strict": True})
    for grad in (False, True):
        x = torch.randn(5, requires_grad=grad)
        torch.testing.assert_close(compiled(x), 2 * x.sin())
        if grad:
            torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), x)[0], 2 * x.cos())
