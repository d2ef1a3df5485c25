"""torch.quasirandom against PyTorch: the same seed gives the same points, however many are drawn at
a time."""
import pytest
import torch as real
from hypothesis import given, strategies as st

import mindtorch.torch as mine


@given(st.integers(1, 40), st.booleans(), st.integers(0, 2**40), st.lists(st.tuples(st.sampled_from(["draw", "fast_forward", "reset"]), st.integers(1, 9)), max_size=6))
def test_sobol_points_match_torch(dimension, scramble, seed, steps):
    def run(T):
        e, out = T.quasirandom.SobolEngine(dimension, scramble=scramble, seed=seed), []
        for name, n in [*steps, ("draw", 3)]:
            r = getattr(e, name)(*(() if name == "reset" else (n,)))
            out.append(r.tolist() if name == "draw" else e.num_generated)
        return out
    assert run(mine) == run(real)


def test_sobol_points_without_a_seed():
    drawn = []
    for T in (real, mine):
        T.manual_seed(7)
        # (PyTorch rounds the first point to the default dtype)
        drawn.append(T.quasirandom.SobolEngine(3, scramble=True).draw(20, dtype=T.float64)[1:].tolist())
    assert drawn[0] == drawn[1]


def test_sobol_number_of_points():
    e = mine.quasirandom.SobolEngine(2)
    assert e.draw_base2(3).shape == (8, 2) and e.draw(0).shape == (0, 2)
    with pytest.raises(ValueError, match="power of 2"):
        e.draw_base2(1)
