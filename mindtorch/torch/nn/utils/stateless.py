"""Module calls with substituted parameters
(https://pytorch.org/docs/stable/generated/torch.func.functional_call.html)."""
import contextlib
import warnings

from mindtorch.core.tensor.tensor import is_tensor

__all__ = ["functional_call"]


def _tied(module):
    """Returns the groups of names that refer to the same tensor."""
    groups = {}
    for named in (module.named_parameters, module.named_buffers):
        for name, t in named(remove_duplicate=False):
            groups.setdefault(id(t), []).append(name)
    return [g for g in groups.values() if len(g) > 1]


def _with_ties(module, given):
    """Returns `given` extended by the other names of tied tensors."""
    full = dict(given)
    for names in _tied(module):
        values = {n: given[n] for n in names if n in given}
        if len({id(v) for v in values.values()}) > 1:
            raise ValueError(f"functional_call got multiple values for keys {sorted(values)}, which are tied. Consider "
                             "using tie_weights=False")
        if values:
            value = next(iter(values.values()))
            for n in names:
                full[n] = value
    return full


def _place(module, name):
    """Resolves a dotted name to (owning module, local name); None if there is no such parameter or
    buffer."""
    path, _, last = name.rpartition(".")
    try:
        holder = module.get_submodule(path)
    except AttributeError:
        return None
    return (holder, last) if last in holder._parameters or last in holder._buffers else None


@contextlib.contextmanager
def _reparametrize_module(module, parameters_and_buffers, tie_weights=False, strict=False, stack_weights=False):
    """Context manager that replaces the module's parameters and buffers by the given tensors."""
    if tie_weights:
        parameters_and_buffers = _with_ties(module, parameters_and_buffers)
    if strict:
        own = [n for named in (module.named_parameters, module.named_buffers) for n, _ in named(remove_duplicate=False)]
        unexpected = sorted(n for n in parameters_and_buffers if n not in own)
        missing = sorted(n for n in own if n not in parameters_and_buffers)
        if unexpected or missing:
            lines = [f"Error(s) in reparametrizing for {module._get_name()}:"]
            for what, keys in (("Unexpected", unexpected), ("Missing", missing)):
                if keys:
                    lines.append(f"{what} key(s): {', '.join(repr(k) for k in keys)}.")
            raise RuntimeError("\n\t".join(lines))
    swapped = []
    try:
        for name, value in parameters_and_buffers.items():
            if not is_tensor(value):
                raise TypeError(f"{value} is not an instance of torch.Tensor")
            place = _place(module, name)
            if place is None:
                continue
            holder, last = place
            held = holder._parameters if last in holder._parameters else holder._buffers
            swapped.append((holder, held, last, held[last], value))
            _put(holder, held, last, value)
        yield
    finally:
        for holder, held, last, old, value in reversed(swapped):
            now = held.get(last)
            if now is not value and now is not None:
                # The forward replaced the tensor (a buffer, for example): report the new one in the
                # caller's dict.
                for n, v in list(parameters_and_buffers.items()):
                    if v is value:
                        parameters_and_buffers[n] = now
            _put(holder, held, last, old)


def _put(holder, held, name, value):
    held[name] = value
    flat = holder.__dict__.get("_flat_weights_names")
    if flat is not None and name in flat:
        holder._flat_weights[flat.index(name)] = value


def _functional_call(module, parameters_and_buffers, args=None, kwargs=None, *, tie_weights=True, strict=False):
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, parameters_and_buffers, tie_weights=tie_weights, strict=strict):
        return module(*args, **(kwargs or {}))


def functional_call(module, parameters_and_buffers, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """Calls the module with the given tensors in place of its parameters and buffers.

    Deprecated alias of torch.func.functional_call.
    """
    warnings.warn("`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in "
                  "a future version of PyTorch. Please use `torch.func.functional_call` instead which is a drop-in "
                  "replacement.",
                  FutureWarning, stacklevel=2)
    return _functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)
