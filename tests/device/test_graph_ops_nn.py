"""Layers, reductions, functions, products and random numbers in compiled callables on the npu device: what the eager run gives, every kernel part of the graph."""
import pytest

import _graph_ops_nn as cases
from _graph_ops import run

CASES = {f"{group.lower()} {name}": c for group in ("NETS", "PRODUCTS", "REDUCTIONS", "FUNCTIONS", "REGIONS", "COMPLEX", "RANDOM")
         for name, c in getattr(cases, group).items()}


@pytest.mark.parametrize("name", CASES)
def test_ops(npu, name):
    """Equal to the eager run, and one graph; what is listed as breaking does break."""
    case, listed = CASES[name], cases.BREAKS.get(name)
    why = run(case, npu, case.grads)
    if listed is None:
        assert not why, why
    else:
        assert why, "no longer breaks: take it off the list"
        assert any([listed in w for w in why]), why
