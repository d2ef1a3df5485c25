"""Pruning: setting weights to zero with masks (https://pytorch.org/docs/stable/nn.html#utilities).
"""
import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable

import mindtorch.torch as torch



class BasePruningMethod(ABC):
    """A forward pre-hook that computes the pruned tensor from `name_orig` and the mask `name_mask`.

    Subclasses set PRUNING_TYPE ("unstructured", "structured" or "global") and define
    `compute_mask`.
    """

    _tensor_name: str

    def __call__(self, module, inputs):
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t, default_mask):
        """Returns the new mask for tensor t, given the current mask."""

    def apply_mask(self, module):
        """Returns the masked parameter."""
        if self._tensor_name is None:
            raise AssertionError(f"Module {module} has to be pruned")
        mask = getattr(module, self._tensor_name + "_mask")
        orig = getattr(module, self._tensor_name + "_orig")
        return mask.to(dtype=orig.dtype) * orig

    @classmethod
    def apply(cls, module, name, *args, importance_scores=None, **kwargs):
        """Prunes module.<name>. If it is already pruned, prunes the remaining entries."""
        old = [(k, hook) for k, hook in module._forward_pre_hooks.items()
               if isinstance(hook, BasePruningMethod) and hook._tensor_name == name]
        if len(old) > 1:
            raise AssertionError(f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}. "
                                 "Use a PruningContainer.")
        method = cls(*args, **kwargs)
        method._tensor_name = name
        if old:
            key, previous = old[0]
            if isinstance(previous, PruningContainer):
                container = previous
            else:
                container = PruningContainer()
                container._tensor_name = name
                container.add_pruning_method(previous)
            container.add_pruning_method(method)
            method = container
            del module._forward_pre_hooks[key]
        orig = getattr(module, name)
        if importance_scores is None:
            importance_scores = orig
        elif importance_scores.shape != orig.shape:
            raise AssertionError(f"importance_scores should have the same shape as parameter {name} of {module}")
        first = not isinstance(method, PruningContainer)
        if first:
            module.register_parameter(name + "_orig", orig)
            del module._parameters[name]
            default_mask = torch.ones_like(orig)
        else:
            default_mask = getattr(module, name + "_mask").detach().clone(memory_format=torch.contiguous_format)
        try:
            with torch.no_grad():
                mask = method.compute_mask(importance_scores, default_mask=default_mask)
            module.register_buffer(name + "_mask", mask)
            setattr(module, name, method.apply_mask(module))
            module.register_forward_pre_hook(method)
        except Exception:
            if first:
                restored = getattr(module, name + "_orig")
                module.register_parameter(name, restored)
                del module._parameters[name + "_orig"]
            raise
        return method

    def prune(self, t, default_mask=None, importance_scores=None):
        """Returns the pruned tensor without registering anything."""
        if importance_scores is None:
            importance_scores = t
        elif importance_scores.shape != t.shape:
            raise AssertionError("importance_scores should have the same shape as tensor t")
        if default_mask is None:
            default_mask = torch.ones_like(t)
        return t * self.compute_mask(importance_scores, default_mask=default_mask)

    def remove(self, module):
        """Makes the pruning permanent: the masked value becomes the parameter."""
        name = self._tensor_name
        if name is None:
            raise AssertionError(f"Module {module} has to be pruned before pruning can be removed")
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        orig = module._parameters[name + "_orig"]
        orig.data = weight.data
        del module._parameters[name + "_orig"]
        del module._buffers[name + "_mask"]
        setattr(module, name, orig)


class PruningContainer(BasePruningMethod):
    """A sequence of pruning methods of one tensor."""

    def __init__(self, *args):
        self._pruning_methods = ()
        if len(args) == 1 and not isinstance(args[0], Iterable):
            self._tensor_name = args[0]._tensor_name
            self.add_pruning_method(args[0])
        else:
            for method in args[0] if len(args) == 1 else args:
                self._tensor_name = method._tensor_name
                self.add_pruning_method(method)

    def add_pruning_method(self, method):
        """Appends a pruning method. TypeError if it is not one, ValueError if it is for another
        tensor."""
        if method is not None and not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError("Can only add pruning methods acting on the parameter named "
                             f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'")
        self._pruning_methods += (method,)

    def __len__(self):
        return len(self._pruning_methods)

    def __iter__(self):
        return iter(self._pruning_methods)

    def __getitem__(self, idx):
        return self._pruning_methods[idx]

    def compute_mask(self, t, default_mask):
        """Combines the current mask with the mask that the last method computes for the remaining
        entries."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            where = mask == 1
        elif method.PRUNING_TYPE == "structured":
            # Channels with at least one remaining entry.
            dim = method.dim % t.dim()
            alive = mask.sum(dim=[d for d in range(t.dim()) if d != dim]) != 0
            where = tuple([slice(None)] * dim + [alive])
        elif method.PRUNING_TYPE == "global":
            where = tuple([slice(None)] * t.dim())
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        partial = method.compute_mask(t[where], default_mask=default_mask[where])
        mask = mask.clone()
        mask[where] = partial.to(mask.dtype)
        return mask


def _validate_pruning_amount_init(amount):
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if (isinstance(amount, numbers.Integral) and amount < 0) or (
            not isinstance(amount, numbers.Integral) and not 0.0 <= float(amount) <= 1.0):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _validate_pruning_amount(amount, tensor_size):
    """Raises ValueError if `amount` exceeds the number of units."""
    if isinstance(amount, numbers.Integral) and amount > tensor_size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={tensor_size}")


def _compute_nparams_toprune(amount, tensor_size):
    """Converts `amount` (a count, or a fraction of `tensor_size`) to a count."""
    return amount if isinstance(amount, numbers.Integral) else round(amount * tensor_size)


def _how_many(amount, size):
    _validate_pruning_amount(amount, size)
    return _compute_nparams_toprune(amount, size)


class _Amount(BasePruningMethod):
    def __init__(self, amount):
        _validate_pruning_amount_init(amount)
        self.amount = amount


class Identity(BasePruningMethod):
    """Prunes nothing, but registers a mask of ones."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        return default_mask

    @classmethod
    def apply(cls, module, name):
        return super().apply(module, name)


class RandomUnstructured(_Amount):
    """Prunes random entries."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        n = _how_many(self.amount, t.nelement())
        mask = default_mask.clone(memory_format=torch.contiguous_format)
        if n:
            chance = torch.rand_like(t)
            mask.view(-1)[torch.topk(chance.view(-1), k=n).indices] = 0
        return mask

    @classmethod
    def apply(cls, module, name, amount):
        return super().apply(module, name, amount=amount)


class L1Unstructured(_Amount):
    """Prunes the entries with the smallest magnitude."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        n = _how_many(self.amount, t.nelement())
        mask = default_mask.clone(memory_format=torch.contiguous_format)
        if n:
            mask.view(-1)[torch.topk(t.abs().view(-1), k=n, largest=False).indices] = 0
        return mask

    @classmethod
    def apply(cls, module, name, amount, importance_scores=None):
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


def _validate_structured_pruning(t):
    if t.dim() <= 1:
        raise ValueError("Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
                         f"{t.shape} with {t.dim()} dims")


def _channel_mask(t, dim, keep):
    """Returns ones in the slices `keep` of dimension `dim`, zeros elsewhere."""
    mask = torch.zeros_like(t)
    mask[tuple(keep if d == dim % t.dim() else slice(None) for d in range(t.dim()))] = 1
    return mask


def _compute_norm(t, n, dim):
    """Returns the n-norm of each slice of dimension `dim`."""
    return torch.norm(t, p=n, dim=[d for d in range(t.dim()) if d != dim % t.dim()])


def _validate_pruning_dim(t, dim):
    if dim >= t.dim():
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")


class RandomStructured(_Amount):
    """Prunes random slices of dimension `dim`."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount, dim=-1):
        super().__init__(amount)
        self.dim = dim

    def compute_mask(self, t, default_mask):
        _validate_structured_pruning(t)
        _validate_pruning_dim(t, self.dim)
        size = t.shape[self.dim]
        n = _how_many(self.amount, size)
        if n == 0:
            return default_mask
        chance = torch.rand(size, device="cpu")
        threshold = torch.kthvalue(chance, k=n).values
        mask = _channel_mask(t, self.dim, chance > threshold)
        return mask * default_mask.to(dtype=mask.dtype)

    @classmethod
    def apply(cls, module, name, amount, dim=-1):
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(_Amount):
    """Prunes the slices of dimension `dim` with the smallest n-norm."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount, n, dim=-1):
        super().__init__(amount)
        self.n = n
        self.dim = dim

    def compute_mask(self, t, default_mask):
        _validate_structured_pruning(t)
        _validate_pruning_dim(t, self.dim)
        size = t.shape[self.dim]
        n = _how_many(self.amount, size)
        if n == 0:
            return default_mask
        norm = _compute_norm(t, self.n, self.dim)
        mask = _channel_mask(t, self.dim, torch.topk(norm, k=size - n, largest=True).indices)
        return mask * default_mask.to(dtype=mask.dtype)

    @classmethod
    def apply(cls, module, name, amount, n, dim, importance_scores=None):
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """Prunes with a user-defined mask."""

    PRUNING_TYPE = "global"

    def __init__(self, mask):
        self.mask = mask

    def compute_mask(self, t, default_mask):
        if default_mask.shape != self.mask.shape:
            raise AssertionError(f"default_mask shape {default_mask.shape} must match mask shape {self.mask.shape}")
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module, name, mask):
        return super().apply(module, name, mask=mask)


def identity(module, name):
    """Registers a mask of ones on module.<name>."""
    Identity.apply(module, name)
    return module


def random_unstructured(module, name, amount):
    """Prunes `amount` (count or fraction) of the entries at random."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module, name, amount, importance_scores=None):
    """Prunes `amount` (count or fraction) of the entries, those with the smallest magnitude."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module, name, amount, dim):
    """Prunes `amount` (count or fraction) of the slices of `dim` at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module, name, amount, n, dim, importance_scores=None):
    """Prunes `amount` (count or fraction) of the slices of `dim`, those with the smallest n-norm.
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module, name, mask):
    """Prunes with a user-defined mask."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters, pruning_method, importance_scores=None, **kwargs):
    """Prunes entries of several (module, name) pairs together; the amount applies to all of them
    jointly."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    importance_scores = {} if importance_scores is None else importance_scores
    if not isinstance(importance_scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    parameters = list(parameters)
    scores = torch.cat([importance_scores.get((m, n), getattr(m, n)).reshape(-1) for m, n in parameters])
    masks = torch.cat([getattr(m, n + "_mask", torch.ones_like(getattr(m, n))).reshape(-1) for m, n in parameters])
    container = PruningContainer()
    container._tensor_name = "temp"
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    container.add_pruning_method(method)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError('Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
                        f"{pruning_method} of type {method.PRUNING_TYPE}")
    with torch.no_grad():
        final = container.compute_mask(scores, masks)
    begin = 0
    for m, n in parameters:
        p = getattr(m, n)
        custom_from_mask(m, n, mask=final[begin:begin + p.numel()].view_as(p))
        begin += p.numel()


def remove(module, name):
    """Makes the pruning of module.<name> permanent. ValueError if there is none."""
    for k, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[k]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module):
    """True if the module or one of its descendants has a pruned parameter."""
    return any(isinstance(hook, BasePruningMethod) for m in module.modules() for hook in m._forward_pre_hooks.values())
