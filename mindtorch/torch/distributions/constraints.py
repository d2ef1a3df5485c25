"""Constraints on the values of a parameter or a sample
(https://pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraints)."""
import mindtorch.torch as torch

__all__ = ["Constraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property", "greater_than", "greater_than_eq",
           "independent", "integer_interval", "interval", "half_open_interval", "is_dependent", "less_than", "lower_cholesky",
           "lower_triangular", "MixtureSameFamilyConstraint", "multinomial", "nonnegative", "nonnegative_integer", "one_hot",
           "positive", "positive_semidefinite", "positive_definite", "positive_integer", "real", "real_vector", "simplex", "square",
           "stack", "symmetric", "unit_interval"]


class Constraint:
    """A region. `check(value)` reports for each event whether it is inside.

      is_discrete  whether the region is countable
      event_dim    number of rightmost dimensions that make up one event
    """

    is_discrete = False
    event_dim = 0

    def check(self, value):
        """Returns a bool tensor with the shape of `value` without its event dimensions."""
        raise NotImplementedError

    def _parts(self):
        return ""

    def __repr__(self):
        return f"{type(self).__name__.lstrip('_')}({self._parts()})"


class _Dependent(Constraint):
    """Placeholder for a constraint that depends on other parameters."""

    def __init__(self, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        self._is_discrete, self._event_dim = is_discrete, event_dim
        super().__init__()

    @property
    def is_discrete(self):
        if self._is_discrete is NotImplemented:
            raise NotImplementedError(".is_discrete cannot be determined statically")
        return self._is_discrete

    @property
    def event_dim(self):
        if self._event_dim is NotImplemented:
            raise NotImplementedError(".event_dim cannot be determined statically")
        return self._event_dim

    def __call__(self, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        """Returns a placeholder with the given properties set."""
        return _Dependent(is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
                          event_dim=self._event_dim if event_dim is NotImplemented else event_dim)

    def check(self, x):
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint):
    """True for a constraint that depends on other parameters."""
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """Decorator: a property that returns a constraint depending on the values of other parameters.
    """

    def __init__(self, fn=None, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        property.__init__(self, fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn):
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class _IndependentConstraint(Constraint):
    """Wraps a constraint so that additional dimensions belong to the event."""

    def __init__(self, base_constraint, reinterpreted_batch_ndims):
        assert isinstance(base_constraint, Constraint) and isinstance(reinterpreted_batch_ndims, int)
        assert reinterpreted_batch_ndims >= 0
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims
        super().__init__()

    @property
    def is_discrete(self):
        return self.base_constraint.is_discrete

    @property
    def event_dim(self):
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value):
        ok = self.base_constraint.check(value)
        n = self.reinterpreted_batch_ndims
        if ok.dim() < n:
            wanted = self.base_constraint.event_dim + n
            raise ValueError(f"Expected value.dim() >= {wanted} but got {value.dim()}")
        return ok.reshape(ok.shape[:ok.dim() - n] + (-1,)).all(-1)

    def _parts(self):
        return f"{self.base_constraint!r}, {self.reinterpreted_batch_ndims}"


class MixtureSameFamilyConstraint(Constraint):
    """Constraint of a mixture: a value must satisfy the constraint of every component."""

    def __init__(self, base_constraint):
        assert isinstance(base_constraint, Constraint)
        self.base_constraint = base_constraint
        super().__init__()

    @property
    def is_discrete(self):
        return self.base_constraint.is_discrete

    @property
    def event_dim(self):
        return self.base_constraint.event_dim

    def check(self, value):
        n = self.event_dim
        ok = self.base_constraint.check(value.unsqueeze(-1 - n))
        if value.dim() < n:
            raise ValueError(f"Expected value.dim() >= {n} but got {value.dim()}")
        # A value is valid if it is valid for all components.
        return ok.reshape(ok.shape[:value.dim() - n] + (-1,)).all(-1)

    def _parts(self):
        return repr(self.base_constraint)


class _Boolean(Constraint):
    """0 or 1."""

    is_discrete = True

    def check(self, value):
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    """Vectors with a single 1."""

    is_discrete, event_dim = True, 1

    def check(self, value):
        return ((value == 0) | (value == 1)).all(-1) & value.sum(-1).eq(1)


class _Bounds(Constraint):
    """Base class of regions with a lower or upper bound."""

    def _parts(self):
        return ", ".join(f"{n}={getattr(self, n)}" for n in ("lower_bound", "upper_bound") if hasattr(self, n))


class _Above(_Bounds):
    def __init__(self, lower_bound):
        self.lower_bound = lower_bound
        super().__init__()


class _Below(_Bounds):
    def __init__(self, upper_bound):
        self.upper_bound = upper_bound
        super().__init__()


class _Between(_Bounds):
    def __init__(self, lower_bound, upper_bound):
        self.lower_bound, self.upper_bound = lower_bound, upper_bound
        super().__init__()


class _IntegerInterval(_Between):
    """Integers from lower_bound to upper_bound, inclusive."""

    is_discrete = True

    def check(self, value):
        return (value % 1 == 0) & (self.lower_bound <= value) & (value <= self.upper_bound)


class _IntegerLessThan(_Below):
    """Integers up to upper_bound, inclusive."""

    is_discrete = True

    def check(self, value):
        return (value % 1 == 0) & (value <= self.upper_bound)


class _IntegerGreaterThan(_Above):
    """Integers from lower_bound, inclusive."""

    is_discrete = True

    def check(self, value):
        return (value % 1 == 0) & (value >= self.lower_bound)


class _Real(Constraint):
    """All values except NaN."""

    def check(self, value):
        return value == value


class _GreaterThan(_Above):
    """Values greater than lower_bound."""

    def check(self, value):
        return self.lower_bound < value


class _GreaterThanEq(_Above):
    """Values greater than or equal to lower_bound."""

    def check(self, value):
        return self.lower_bound <= value


class _LessThan(_Below):
    """Values less than upper_bound."""

    def check(self, value):
        return value < self.upper_bound


class _Interval(_Between):
    """Values from lower_bound to upper_bound, inclusive."""

    def check(self, value):
        return (self.lower_bound <= value) & (value <= self.upper_bound)


class _HalfOpenInterval(_Between):
    """Values from lower_bound, inclusive, to upper_bound, exclusive."""

    def check(self, value):
        return (self.lower_bound <= value) & (value < self.upper_bound)


class _Simplex(Constraint):
    """Vectors of non-negative values with sum 1."""

    event_dim = 1

    def check(self, value):
        return torch.all(value >= 0, dim=-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(Constraint):
    """Vectors of non-negative counts with sum upper_bound. The check also accepts a smaller sum."""

    is_discrete, event_dim = True, 1

    def __init__(self, upper_bound):
        self.upper_bound = upper_bound

    def check(self, x):
        return (x >= 0).all(dim=-1) & (x.sum(dim=-1) <= self.upper_bound)


class _LowerTriangular(Constraint):
    """Lower-triangular matrices."""

    event_dim = 2

    def check(self, value):
        return (value.tril() == value).flatten(-2).all(-1)


class _LowerCholesky(Constraint):
    """Lower-triangular matrices with a positive diagonal."""

    event_dim = 2

    def check(self, value):
        return (value.tril() == value).flatten(-2).all(-1) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(Constraint):
    """Lower-triangular matrices with a positive diagonal and rows of length 1."""

    event_dim = 2

    def check(self, value):
        tolerance = torch.finfo(value.dtype).eps * value.shape[-1] * 10
        unit = ((torch.linalg.norm(value.detach(), dim=-1) - 1).abs() < tolerance).all(dim=-1)
        return _LowerCholesky().check(value) & unit


class _Square(Constraint):
    """Square matrices."""

    event_dim = 2

    def check(self, value):
        return torch.full(value.shape[:-2], value.shape[-2] == value.shape[-1], dtype=torch.bool, device=value.device)


class _Symmetric(_Square):
    """Symmetric matrices."""

    def check(self, value):
        square = super().check(value)
        if not square.all():
            return square
        return torch.isclose(value, value.mT, atol=1e-6).all(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    """Symmetric matrices without negative eigenvalues."""

    def check(self, value):
        symmetric = super().check(value)
        return torch.linalg.eigvalsh(value).ge(0).all(-1) if symmetric.all() else symmetric


class _PositiveDefinite(_Symmetric):
    """Symmetric matrices with positive eigenvalues."""

    def check(self, value):
        symmetric = super().check(value)
        return torch.linalg.cholesky_ex(value).info.eq(0) if symmetric.all() else symmetric


class _Pieces(Constraint):
    """Base class of constraints on the slices of a dimension."""

    @property
    def is_discrete(self):
        return any(c.is_discrete for c in self.cseq)


class _Cat(_Pieces):
    """Consecutive slices along `dim`, of sizes `lengths`, each with its own constraint."""

    def __init__(self, cseq, dim=0, lengths=None):
        assert all(isinstance(c, Constraint) for c in cseq)
        self.cseq, self.dim = list(cseq), dim
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        assert len(self.lengths) == len(self.cseq)
        super().__init__()

    @property
    def event_dim(self):
        return max(c.event_dim for c in self.cseq)

    def check(self, value):
        assert -value.dim() <= self.dim < value.dim()
        start, checks = 0, []
        for c, n in zip(self.cseq, self.lengths):
            checks.append(c.check(value.narrow(self.dim, start, n)))
            start += n
        return torch.cat(checks, self.dim)


class _Stack(_Pieces):
    """One constraint for each index of `dim`."""

    def __init__(self, cseq, dim=0):
        assert all(isinstance(c, Constraint) for c in cseq)
        self.cseq, self.dim = list(cseq), dim
        super().__init__()

    @property
    def event_dim(self):
        n = max(c.event_dim for c in self.cseq)
        return n + 1 if self.dim + n < 0 else n

    def check(self, value):
        assert -value.dim() <= self.dim < value.dim()
        return torch.stack([c.check(value.select(self.dim, i)) for i, c in enumerate(self.cseq)], self.dim)


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean, one_hot, real = _Boolean(), _OneHot(), _Real()
nonnegative_integer, positive_integer = _IntegerGreaterThan(0), _IntegerGreaterThan(1)
integer_interval, interval, half_open_interval = _IntegerInterval, _Interval, _HalfOpenInterval
real_vector = independent(real, 1)
positive, nonnegative = _GreaterThan(0.0), _GreaterThanEq(0.0)
greater_than, greater_than_eq, less_than, multinomial = _GreaterThan, _GreaterThanEq, _LessThan, _Multinomial
unit_interval = _Interval(0.0, 1.0)
simplex = _Simplex()
lower_triangular, lower_cholesky, corr_cholesky = _LowerTriangular(), _LowerCholesky(), _CorrCholesky()
square, symmetric = _Square(), _Symmetric()
positive_semidefinite, positive_definite = _PositiveSemidefinite(), _PositiveDefinite()
cat, stack = _Cat, _Stack
