"""torch.quasirandom: Sobol sequences (https://pytorch.org/docs/stable/generated/torch.quasirandom.SobolEngine.html)."""
import functools

import numpy as np

from mindtorch.core.tensor import dtypes
from mindtorch.core.tensor.tensor import wrap_array

__all__ = ["SobolEngine"]


@functools.lru_cache(16)
def _directions(dimension, bits):
    """Returns the direction numbers as integers of shape (dimension, bits)."""
    try:
        from scipy.stats import qmc
    except ImportError as e:
        raise NotImplementedError("torch.quasirandom.SobolEngine needs scipy, which is not installed") from e
    return np.array(qmc.Sobol(dimension, scramble=False, bits=bits)._sv, np.int64)


class SobolEngine:
    """Points of a Sobol sequence in [0, 1)^dimension, in Gray code order.

    The direction numbers come from scipy.stats.qmc; PyTorch uses the same ones.

    Args:
        scramble: multiplies the directions by a random lower triangular bit matrix, and XORs
            the points with a random shift. Both are drawn from `seed`, or from the default
            generator without a seed.
    """

    MAXBIT, MAXDIM = 30, 21201

    def __init__(self, dimension, scramble=False, seed=None):
        if dimension > self.MAXDIM or dimension < 1:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        self.dimension, self.scramble, self.seed, self.num_generated = dimension, scramble, seed, 0
        self._directions = _directions(dimension, self.MAXBIT)
        self._shift = np.zeros(dimension, np.int64)
        if scramble:
            self._mix()

    def _mix(self):
        from mindtorch import torch
        g = None if self.seed is None else torch.Generator().manual_seed(self.seed)
        places = 1 << np.arange(self.MAXBIT, dtype=np.int64)
        self._shift = torch.randint(2, (self.dimension, self.MAXBIT), generator=g, device="cpu").numpy() @ places
        squares = torch.randint(2, (self.dimension, self.MAXBIT, self.MAXBIT), generator=g, device="cpu").numpy()
        matrix = np.tril(squares, -1) + np.eye(self.MAXBIT, dtype=np.int64)
        # Bits from the most to the least significant, one column per direction.
        bits = (self._directions[:, None, :] >> np.arange(self.MAXBIT - 1, -1, -1)[:, None]) & 1
        self._directions = ((matrix @ bits & 1) * places[::-1, None]).sum(1)

    def _points(self, n):
        """Returns the next n points as integers; consecutive points differ by one XORed direction.
        """
        if self.num_generated + n > 1 << self.MAXBIT:
            raise ValueError(f"a Sobol sequence has at most 2**{self.MAXBIT} points")
        k = np.arange(self.num_generated, self.num_generated + n, dtype=np.int64)
        gray = self.num_generated ^ self.num_generated >> 1
        first = self._shift ^ np.bitwise_xor.reduce(self._directions * (gray >> np.arange(self.MAXBIT) & 1), 1)
        lowest = k[1:] & -k[1:]
        steps = self._directions.T[np.round(np.log2(lowest)).astype(np.int64)] if n > 1 else np.zeros((0, self.dimension), np.int64)
        return np.bitwise_xor.accumulate(np.concatenate((first[None], steps)), 0)

    def draw(self, n=1, out=None, dtype=None):
        """Returns the next n points, of shape (n, dimension)."""
        d = (dtypes.get_default_dtype() if dtype is None else dtype).np
        points = self._points(n) if n else np.empty((0, self.dimension), np.int64)
        self.num_generated += n
        r = wrap_array(points.astype(d) * d.type(2.0 ** -self.MAXBIT))
        return r if out is None else out.resize_(r.shape).copy_(r)

    def draw_base2(self, m, out=None, dtype=None):
        """Returns the next 2 ** m points."""
        n = 2 ** m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(f"The balance properties of Sobol' points require n to be a power of 2. {self.num_generated} points have been previously "
                             f"generated, then: n={self.num_generated}+2**{m}={total}.")
        return self.draw(n, out, dtype)

    def reset(self):
        """Restarts the sequence at the first point."""
        self.num_generated = 0
        return self

    def fast_forward(self, n):
        """Skips n points."""
        self.num_generated += n
        return self

    def __repr__(self):
        text = [f"dimension={self.dimension}"] + (["scramble=True"] if self.scramble else []) + ([f"seed={self.seed}"] if self.seed is not None else [])
        return f"SobolEngine({', '.join(text)})"
