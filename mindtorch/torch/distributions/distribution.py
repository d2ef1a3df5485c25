"""Base class of all distributions."""
import warnings

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Size, is_tensor
from mindtorch.torch.distributions import constraints
from mindtorch.torch.distributions.utils import lazy_property

__all__ = ["Distribution"]


class Distribution:
    """A batch of probability distributions of shape `batch_shape`, over events of shape
    `event_shape`.

    https://pytorch.org/docs/stable/distributions.html#distribution
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value):
        """Sets whether distributions validate their arguments by default."""
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(self, batch_shape=Size(), event_shape=Size(), validate_args=None):
        self._batch_shape, self._event_shape = batch_shape, event_shape
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _check_parameters(self):
        try:
            wanted = self.arg_constraints
        except NotImplementedError:
            wanted = {}
            warnings.warn(f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or initialize the "
                          "distribution with `validate_args=False` to turn off validation.", stacklevel=3)
        for name, constraint in wanted.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in self.__dict__ and isinstance(getattr(type(self), name), lazy_property):
                continue  # derived from the given one of `probs` and `logits`
            value = getattr(self, name)
            ok = constraint.check(value)
            if not ok.all():
                raise ValueError(f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                                 f"{self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}")

    # ---- expansion
    def expand(self, batch_shape, _instance=None):
        """Returns the distribution with its parameters expanded to `batch_shape`."""
        raise NotImplementedError

    def _expand_parameters(self, kind, batch_shape, _instance, names=None, init=None):
        """Implements `expand` for classes whose only state is their parameters: `names`, by default
        the constrained ones."""
        new = self._get_checked_instance(kind, _instance)
        batch_shape = Size(tuple(batch_shape))
        for name in kind.arg_constraints if names is None else names:
            if name in self.__dict__:
                value, dims = self.__dict__[name], kind.arg_constraints[name].event_dim
                new.__dict__[name] = value.expand(batch_shape + value.shape[value.dim() - dims:])
        (init or Distribution).__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _get_checked_instance(self, cls, _instance=None):
        if _instance is None and type(self).__init__ != cls.__init__:
            raise NotImplementedError(f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method must also "
                                      "define a custom .expand() method.")
        return self.__new__(type(self)) if _instance is None else _instance

    # ---- properties
    @property
    def batch_shape(self):
        """Shape over which parameters are batched."""
        return self._batch_shape

    @property
    def event_shape(self):
        """Shape of one sample of one distribution."""
        return self._event_shape

    @property
    def arg_constraints(self):
        """Dict from parameter name to its constraint."""
        raise NotImplementedError

    @property
    def support(self):
        """Constraint that samples satisfy."""
        raise NotImplementedError

    @property
    def mean(self):
        """Mean."""
        raise NotImplementedError

    @property
    def mode(self):
        """Most probable value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self):
        """Variance."""
        raise NotImplementedError

    @property
    def stddev(self):
        """Standard deviation."""
        return self.variance.sqrt()

    # ---- samples
    def sample(self, sample_shape=Size()):
        """Returns samples of shape sample_shape + batch_shape + event_shape, without gradient."""
        with torch.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=Size()):
        """Returns samples that are differentiable with respect to the parameters."""
        raise NotImplementedError

    def sample_n(self, n):
        """Returns n samples. Deprecated name of `sample((n,))`."""
        warnings.warn("sample_n(n) will be deprecated. Use .sample((n,)) instead", UserWarning, stacklevel=2)
        return self.sample(Size((n,)))

    # ---- probabilities
    def log_prob(self, value):
        """Returns the log of the probability density, or of the probability, at `value`."""
        raise NotImplementedError

    def cdf(self, value):
        """Returns the probability of a sample less than or equal to `value`."""
        raise NotImplementedError

    def icdf(self, value):
        """Returns the inverse of `cdf` at `value`."""
        raise NotImplementedError

    def enumerate_support(self, expand=True):
        """Returns all values of a discrete distribution, along a new first dimension."""
        raise NotImplementedError

    def entropy(self):
        """Returns the entropy, in nats."""
        raise NotImplementedError

    def perplexity(self):
        """Returns the exponential of the entropy."""
        return torch.exp(self.entropy())

    # ---- helpers
    def _extended_shape(self, sample_shape=Size()):
        if not isinstance(sample_shape, Size):
            sample_shape = Size(tuple(sample_shape))
        return Size(sample_shape + self._batch_shape + self._event_shape)

    def _validate_value(self, value):
        """Validates the argument of a method, if this is enabled."""
        if self._validate_args:
            self._validate_sample(value)

    def _validate_sample(self, value):
        if not is_tensor(value):
            raise ValueError("The value argument to log_prob must be a Tensor")
        first = value.dim() - len(self._event_shape)
        if value.shape[first:] != self._event_shape:
            raise ValueError(f"The right-most size of value must match event_shape: {value.size()} vs {self._event_shape}.")
        expected = self._batch_shape + self._event_shape
        for i, j in zip(reversed(value.shape), reversed(expected)):
            if i != 1 and j != 1 and i != j:
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {value.size()} vs {expected}.")
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(f"{type(self)} does not define `support` to enable sample validation. Please initialize the distribution with "
                          "`validate_args=False` to turn off validation.", stacklevel=3)
            return
        assert support is not None
        ok = support.check(value)
        if not ok.all():
            raise ValueError(f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the support "
                             f"({support!r}) of the distribution {self!r}, but found invalid values:\n{value}")

    def __repr__(self):
        shown = []
        for name in self.arg_constraints:
            if name in self.__dict__:
                p = self.__dict__[name]
                shown.append(f"{name}: {p if p.numel() == 1 else p.size()}")
        return f"{type(self).__name__}({', '.join(shown)})"
