"""torch.quasirandom: Sobol sequences (https://pytorch.org/docs/stable/generated/torch.quasirandom.SobolEngine.html)."""
import numpy as np

from mindtorch.core import dtypes
from mindtorch.core.tensor import wrap

__all__ = ["SobolEngine"]


class SobolEngine:
    """Points of a Sobol sequence in [0, 1)^dimension, by scipy.stats.qmc (whose direction numbers are torch's).

    Unscrambled points are torch's own; scrambled ones have the same properties, but other random numbers behind them.
    """

    MAXBIT, MAXDIM = 30, 21201

    def __init__(self, dimension, scramble=False, seed=None):
        if dimension > self.MAXDIM or dimension < 1:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        self.dimension, self.scramble, self.seed, self.num_generated = dimension, scramble, seed, 0
        self._start()

    def _start(self):
        try:
            from scipy.stats import qmc
        except ImportError as e:
            raise NotImplementedError("torch.quasirandom.SobolEngine needs scipy, which is not installed") from e
        seed = self.seed
        if self.scramble and seed is None:
            from mindtorch import torch
            seed = int(torch.randint(0, 2 ** 31, ()).item())
        self._engine = qmc.Sobol(self.dimension, scramble=self.scramble, rng=np.random.default_rng(seed), bits=self.MAXBIT)

    def draw(self, n=1, out=None, dtype=None):
        """The next n points: (n, dimension)."""
        import warnings
        d = (dtypes.get_default_dtype() if dtype is None else dtype).np
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)       # (scipy's advice to draw powers of two)
            points = self._engine.random(n) if n else np.empty((0, self.dimension))
        self.num_generated += n
        r = wrap(points.astype(d))
        return r if out is None else out.resize_(r.shape).copy_(r)

    def draw_base2(self, m, out=None, dtype=None):
        """The next 2 ** m points."""
        n = 2 ** m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(f"The balance properties of Sobol' points require n to be a power of 2. {self.num_generated} points have been previously "
                             f"generated, then: n={self.num_generated}+2**{m}={total}.")
        return self.draw(n, out, dtype)

    def reset(self):
        """Back to the first point."""
        self._engine.reset()
        self.num_generated = 0
        return self

    def fast_forward(self, n):
        """Leaves out n points."""
        self._engine.fast_forward(n)
        self.num_generated += n
        return self

    def __repr__(self):
        text = [f"dimension={self.dimension}"] + (["scramble=True"] if self.scramble else []) + ([f"seed={self.seed}"] if self.seed is not None else [])
        return f"SobolEngine({', '.join(text)})"
