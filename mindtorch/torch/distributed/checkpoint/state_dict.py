"""state_dicts of models and optimizers keyed by parameter name, independent of how the model is
wrapped.

The parts of names inserted by DistributedDataParallel, FSDP, torch.compile and activation
checkpointing are removed. An optimizer's state is keyed by these names instead of integers, so it
fits another number of ranks or another order of parameters.
"""
from dataclasses import dataclass, field

import mindtorch.torch as torch
import mindtorch.torch.distributed as dist
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.optim.optimizer import Optimizer

__all__ = ["FQNS_T", "PrimitiveType", "ValueType", "DictValueType", "ListDictValueType", "OptimizerStateType",
           "StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "set_model_state_dict",
           "set_optimizer_state_dict", "set_state_dict"]

FQNS_T = set
PrimitiveType = ValueType = object
DictValueType = ListDictValueType = OptimizerStateType = dict


@dataclass
class StateDictOptions:
    """Options for getting and setting state_dicts.

    - full_state_dict: complete tensors instead of DTensors; with cpu_offload only rank 0 gets them
    - broadcast_from_rank0: (setting, with full_state_dict) only rank 0 needs to have the state_dict
    - flatten_optimizer_state_dict: one level of dotted keys
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = field(default="_fqn_modifiers")


_INSERTED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def _checked(options):
    options = options or StateDictOptions()
    if options.broadcast_from_rank0 and not options.full_state_dict:
        raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")
    return options


def _clean(model, name):
    """Removes the parts that wrappers inserted from a dotted name."""
    from mindtorch.torch.nn.parallel import DistributedDataParallel

    here, parts = model, []
    for part in name.split("."):
        inserted = part in _INSERTED or (part == "module" and isinstance(here, DistributedDataParallel))
        if not inserted:
            parts.append(part)
        here = getattr(here, part, None)
    return ".".join(parts)


def _within(model, submodules):
    """Returns the set of clean name prefixes of the chosen submodules."""
    return {_clean(model, n) for n, m in model.named_modules() if m in submodules}


def _given(value, options):
    """Converts a tensor as requested by the options."""
    from mindtorch.torch.distributed.tensor import DTensor

    if isinstance(value, DTensor):
        if options.full_state_dict:
            value = value.full_tensor().detach()
        elif options.cpu_offload:
            return value._with_local(value._local_tensor.detach().cpu())
    if is_tensor(value) and options.cpu_offload:
        value = value.detach().cpu()
    return value


def _tree(value, options):
    if isinstance(value, dict):
        return {k: _tree(v, options) for k, v in value.items()}
    if type(value) is list:
        return [_tree(v, options) for v in value]
    return _given(value, options)


def _finished(state, options):
    """Converts a state_dict as requested by the options. Complete tensors in host memory are
    returned on rank 0 only."""
    state = _tree(state, options)
    if options.full_state_dict and options.cpu_offload and dist.is_available() and dist.is_initialized() and dist.get_rank() > 0:
        return {}
    return state


# ------------------------------------------------------------------ model
def get_model_state_dict(model, *, submodules=None, options=None):
    """Returns the model's state_dict with clean names. `submodules` restricts it to some of its
    modules."""
    options = _checked(options)
    return _finished(_model_state(model, submodules, options), options)


def _model_state(model, submodules, options):
    from mindtorch.torch.distributed.fsdp._wrapped import sharded_state

    with sharded_state(model):
        state = {_clean(model, k): v for k, v in model.state_dict().items()}
    if options.ignore_frozen_params:
        for name, p in model.named_parameters():
            if not p.requires_grad:
                state.pop(_clean(model, name), None)
    if submodules:
        chosen = {}
        for prefix in sorted(_within(model, submodules)):
            for k, v in state.items():
                if k.startswith(prefix + "."):
                    chosen[k if options.keep_submodule_prefixes else k[len(prefix) + 1:]] = v
        state = chosen
    return state


def set_model_state_dict(model, model_state_dict, *, options=None):
    """Loads a state_dict with clean names and returns the missing and unexpected keys; if
    options.strict, they raise RuntimeError."""
    options = _checked(options)
    if model_state_dict and isinstance(next(iter(model_state_dict)), Module):
        joined = {}
        for module, state in model_state_dict.items():
            prefix = next(_clean(model, n) for n, m in model.named_modules() if m is module)
            joined.update({f"{prefix}.{k}" if prefix else k: v for k, v in state.items()})
        model_state_dict = joined
    if options.broadcast_from_rank0:
        model_state_dict = _from_rank0(model_state_dict)
    from mindtorch.torch.distributed.fsdp._wrapped import sharded_state

    with sharded_state(model):
        own = model.state_dict()
        here = {_clean(model, k): k for k in own}
        state = {here.get(k, k): _fitting(v, own.get(here.get(k))) for k, v in model_state_dict.items()}
        if options.ignore_frozen_params:
            for name, p in model.named_parameters():
                if not p.requires_grad:
                    state.setdefault(name, own[name])
        return model.load_state_dict(state, strict=options.strict)


def _fitting(value, like):
    """Converts a value to the kind of tensor that the model has here: a complete tensor to a
    DTensor, or the reverse."""
    from mindtorch.torch.distributed.tensor import DTensor

    if isinstance(like, DTensor) and is_tensor(value) and not isinstance(value, DTensor) and value.dim() == like.dim():
        return like._shard_of(value)
    if isinstance(value, DTensor) and not isinstance(like, DTensor) and like is not None:
        return value.full_tensor()
    return value


def _from_rank0(state):
    """Returns rank 0's state on all ranks."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return state
    tensors = []

    def out(value):
        if is_tensor(value):
            tensors.append(value)
            return _Place(tuple(value.shape), value.dtype, value.device.type)
        if isinstance(value, dict):
            return {k: out(v) for k, v in value.items()}
        return [out(v) for v in value] if type(value) is list else value

    def back(value):
        if isinstance(value, _Place):
            t = tensors.pop(0).detach().contiguous() if dist.get_rank() == 0 else torch.empty(value.shape, dtype=value.dtype, device=value.device)
            dist.broadcast(t, src=0)
            return t
        if isinstance(value, dict):
            return {k: back(v) for k, v in value.items()}
        return [back(v) for v in value] if type(value) is list else value

    box = [out(state) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    return back(box[0])


@dataclass
class _Place:
    """Placeholder for a tensor of this shape, which is sent separately."""

    shape: tuple
    dtype: object
    device: str


# ------------------------------------------------------------------ optimizers
def _all(optimizers):
    return (optimizers,) if isinstance(optimizers, Optimizer) else tuple(optimizers)


def _names(model):
    return {id(p): _clean(model, n) for n, p in model.named_parameters(remove_duplicate=False)}


def _fill_state(optimizer):
    """Creates the state that the first step would create, by a step with zero gradients and a zero
    learning rate."""
    if optimizer.state:
        return
    params = [p for g in optimizer.param_groups for p in g["params"]]
    if any(p.grad is not None for p in params):
        return  # between backward and the first step: do not take that step here
    rates = []
    with torch.no_grad():
        for p in params:
            if p.requires_grad:
                p.grad = torch.zeros_like(p)
        for g in optimizer.param_groups:
            rates.append(g.get("lr"))
            if "lr" in g:
                g["lr"] = torch.tensor(0.0) if is_tensor(g["lr"]) else 0.0
        try:
            optimizer.step(closure=None)
        finally:
            for g, rate in zip(optimizer.param_groups, rates):
                if "lr" in g:
                    g["lr"] = rate
            optimizer.zero_grad(set_to_none=True)


def get_optimizer_state_dict(model, optimizers, *, submodules=None, options=None):
    """Returns {"state": {name: state}, "param_groups": [... with names]} for one or several
    optimizers together."""
    options = _checked(options)
    return _finished(_optimizer_state(model, _all(optimizers), submodules, options), options)


def _optimizer_state(model, optimizers, submodules, options):
    names = _names(model)
    result = {"state": {}, "param_groups": []}
    prefixes = tuple(p + "." for p in _within(model, submodules)) if submodules else None
    for optimizer in optimizers:
        _fill_state(optimizer)
        saved = optimizer.state_dict()
        params = [p for g in optimizer.param_groups for p in g["params"]]
        fqns = [names[id(p)] for p in params]
        for i, fqn in enumerate(fqns):
            if i in saved["state"] and (prefixes is None or fqn.startswith(prefixes)):
                result["state"][fqn] = saved["state"][i]
        for group in saved["param_groups"]:
            own = [fqns[i] for i in group["params"]]
            own = own if prefixes is None else [n for n in own if n.startswith(prefixes)]
            if own:
                result["param_groups"].append({**{k: v for k, v in group.items() if k != "params"}, "params": own})
    if not options.flatten_optimizer_state_dict:
        return result
    flat = {}
    for fqn, state in result["state"].items():
        flat.update({f"state.{fqn}.{k}": v for k, v in state.items()})
    for group in result["param_groups"]:
        for fqn in group["params"]:
            flat.update({f"param_groups.{fqn}.{k}": v for k, v in group.items() if k != "params"})
    return flat


def _unflatten(model, optimizer, flat):
    names = _names(model)
    result = {"state": {}, "param_groups": []}
    for group in optimizer.param_groups:
        fqns = [names[id(p)] for p in group["params"]]
        new = {"params": fqns}
        for fqn in fqns:
            state = {k: flat[f"state.{fqn}.{k}"] for p in group["params"] if names[id(p)] == fqn
                     for k in optimizer.state.get(p, ()) if f"state.{fqn}.{k}" in flat}
            if state:
                result["state"][fqn] = state
            for k in group:
                if k != "params":
                    key = f"param_groups.{fqn}.{k}"
                    if key not in flat:
                        raise RuntimeError(f"Missing key in optimizer state_dict: {key}.")
                    if k in new and not _equal(new[k], flat[key]):
                        raise RuntimeError(f"the parameters of one group have different values of '{k}': {new[k]} and {flat[key]}")
                    new[k] = flat[key]
        result["param_groups"].append(new)
    return result


def _equal(a, b):
    return bool(torch.equal(a, b)) if is_tensor(a) and is_tensor(b) else a == b


def set_optimizer_state_dict(model, optimizers, optim_state_dict, *, options=None):
    """Loads the result of `get_optimizer_state_dict`, even from another wrapping, parameter order
    or number of ranks."""
    options = _checked(options)
    if options.broadcast_from_rank0:
        optim_state_dict = _from_rank0(optim_state_dict)
    names = _names(model)
    for optimizer in _all(optimizers):
        if not optim_state_dict:
            continue
        _fill_state(optimizer)
        given = optim_state_dict if "state" in optim_state_dict and "param_groups" in optim_state_dict else \
            _unflatten(model, optimizer, optim_state_dict)
        _load_one(optimizer, given, names, options)


def _load_one(optimizer, given, names, options):
    own = optimizer.state_dict()
    params = [p for g in optimizer.param_groups for p in g["params"]]
    group_of = {}
    for group in given["param_groups"]:
        for fqn in group["params"]:
            group_of[fqn] = group
    state = {}
    for i, p in enumerate(params):
        fqn = names[id(p)]
        if fqn in given["state"]:
            like = optimizer.state.get(p, {})
            state[i] = {k: _fitting(v, like.get(k)) for k, v in given["state"][fqn].items()}
        elif optimizer.state.get(p) and p.requires_grad and options.strict and given["state"]:
            raise RuntimeError(f"Missing optimizer state for parameter '{fqn}' in checkpoint. The parameter requires gradients "
                               "but has no saved optimizer state. To load anyway, use StateDictOptions(strict=False).")
        elif i in own["state"]:
            state[i] = own["state"][i]
    groups = []
    for mine in own["param_groups"]:
        found = [group_of[names[id(params[i])]] for i in mine["params"] if names[id(params[i])] in group_of]
        if mine["params"] and not found:
            fqns = [names[id(params[i])] for i in mine["params"]]
            raise RuntimeError(f"no param_group of the checkpoint contains any of the parameters {fqns}")
        new = {**mine, **({k: v for k, v in found[0].items() if k != "params"} if found else {})}
        groups.append(new)
    optimizer.load_state_dict({"state": state, "param_groups": groups})


# ------------------------------------------------------------------ model and optimizers
def get_state_dict(model, optimizers, *, submodules=None, options=None):
    """Returns (state_dict of the model, state_dict of the optimizers), as the separate functions
    return them."""
    return (get_model_state_dict(model, submodules=submodules, options=options),
            get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options))


def set_state_dict(model, optimizers, *, model_state_dict, optim_state_dict, options=None):
    """Loads both state_dicts and returns the model's missing and unexpected keys."""
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return set_model_state_dict(model, model_state_dict, options=options)


