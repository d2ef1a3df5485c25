"""Modules as functions of a tuple of parameters and a tuple of buffers.

This is functorch's older API; torch.func.functional_call supersedes it.
"""
import copy

from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.nn.utils.stateless import _reparametrize_module

__all__ = ["FunctionalModule", "FunctionalModuleWithBuffers", "make_functional", "make_functional_with_buffers", "combine_state_for_ensemble",
           "functional_init", "functional_init_with_buffers", "create_names_map", "extract_weights", "extract_buffers"]

_KINDS = {"parameters": "_parameters", "buffers": "_buffers"}


def create_names_map(named_params, tied_named_params):
    """Returns {name: all names of the same tensor} for the names in `named_params`, in the order of
    both."""
    named, every = dict(named_params), dict(tied_named_params)
    if not set(named) <= set(every):
        raise RuntimeError(f"names without a tensor in tied_named_params: {sorted(set(named) - set(every))}")
    names = {id(t): (n, []) for n, t in named.items()}
    for n, t in every.items():
        if id(t) not in names:
            raise RuntimeError(f"{n} is tied to no tensor of named_params")
        names[id(t)][1].append(n)
    return dict(names.values())


def _named(mod, kind, every=False):
    return dict(getattr(mod, "named_" + kind)(remove_duplicate=not every))


def _members(mod, kind):
    """Returns (the distinct tensors of a kind, their names, all names of each) and replaces them in
    the module by meta tensors."""
    named, every = _named(mod, kind), _named(mod, kind, True)
    names_map = create_names_map(named, every)
    blanks = {id(t): _blank(t) for t in named.values()}
    for n, t in every.items():
        path, _, last = n.rpartition(".")
        getattr(mod.get_submodule(path), _KINDS[kind])[last] = blanks[id(t)]
    return tuple(named.values()), tuple(named), names_map


def _blank(t):
    r = copy.copy(t.detach()).to("meta")
    return type(t)(r, requires_grad=t.requires_grad) if type(t) is not type(r) else r


def extract_weights(mod):
    """Returns (parameters, their names, {name: all names of the parameter}). The module keeps
    parameters of the same shapes on the meta device."""
    return _members(mod, "parameters")


def extract_buffers(mod):
    """Like `extract_weights`, for buffers."""
    return _members(mod, "buffers")


class _Stateless(Module):
    """Base class of modules without parameters of their own. Calls substitute the given tensors."""

    def _run(self, names_map, names, tensors, args, kwargs):
        given = {n: t for name, t in zip(names, tensors) for n in names_map[name]}
        with _reparametrize_module(self.stateless_model, given):
            return self.stateless_model(*args, **kwargs)


class FunctionalModule(_Stateless):
    """A module as a function: called with a sequence of parameters, then the module's arguments."""

    def __init__(self, stateless_model, param_names, names_map):
        super().__init__()
        self.stateless_model, self.param_names, self.names_map = stateless_model, param_names, names_map

    @staticmethod
    def _create_from(model, disable_autograd_tracking=False):
        copied = copy.deepcopy(model)
        params, names, names_map = extract_weights(copied)
        if disable_autograd_tracking:
            for p in params:
                p.requires_grad_(False)
        return FunctionalModule(copied, names, names_map), params

    def forward(self, params, *args, **kwargs):
        """Returns the module's result with these parameters."""
        return self._run(self.names_map, self.param_names, params, args, kwargs)


class FunctionalModuleWithBuffers(_Stateless):
    """A module as a function: called with parameters and buffers, then the module's arguments."""

    def __init__(self, stateless_model, param_names, buffer_names, param_names_map, buffer_names_map):
        super().__init__()
        self.stateless_model, self.param_names, self.buffer_names = stateless_model, param_names, buffer_names
        self.all_names_map = {**param_names_map, **buffer_names_map}

    @staticmethod
    def _create_from(model, disable_autograd_tracking=False):
        copied = copy.deepcopy(model)
        params, names, names_map = extract_weights(copied)
        buffers, buffer_names, buffer_names_map = extract_buffers(copied)
        if disable_autograd_tracking:
            for p in params:
                p.requires_grad_(False)
        return FunctionalModuleWithBuffers(copied, names, buffer_names, names_map, buffer_names_map), params, buffers

    def forward(self, params, buffers, *args, **kwargs):
        """Returns the module's result with these parameters and buffers."""
        return self._run(self.all_names_map, self.param_names + self.buffer_names, tuple(params) + tuple(buffers), args, kwargs)


def make_functional(model, disable_autograd_tracking=False):
    """Returns (FunctionalModule, its parameters) for a copy of a module without buffers."""
    if next(iter(model.buffers()), None) is not None:
        raise RuntimeError("make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead.")
    return FunctionalModule._create_from(model, disable_autograd_tracking=disable_autograd_tracking)


def make_functional_with_buffers(model, disable_autograd_tracking=False):
    """Returns (FunctionalModuleWithBuffers, parameters, buffers) for a copy of a module."""
    return FunctionalModuleWithBuffers._create_from(model, disable_autograd_tracking=disable_autograd_tracking)


def _stacked(rows):
    stack = OPS["stack"].fn
    return tuple([stack(list(column), 0).detach() for column in zip(*rows)])


def combine_state_for_ensemble(models):
    """Returns (functional module, stacked parameters, stacked buffers) for modules of one class,
    for `vmap` over the first dimension."""
    if not models:
        raise RuntimeError("combine_state_for_ensemble: Expected at least one model, got 0.")
    if any(m.training for m in models) and not all(m.training for m in models):
        raise RuntimeError("combine_state_for_ensemble: Expected all models to have the same training/eval mode.")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("combine_state_for_ensemble: Expected all models to be of the same class.")
    functions, params, buffers = zip(*[make_functional_with_buffers(m) for m in models])
    stack = OPS["stack"].fn
    return functions[0], tuple([stack(list(c), 0).detach() for c in zip(*params)]), tuple([stack(list(c), 0) for c in zip(*buffers)])


def _models(model_class, ensemble_shape, device, args, kwargs):
    """Creates the modules of an ensemble of this shape on a device."""
    if len(ensemble_shape) >= 2:
        raise ValueError("NYI: ensemble_shape with more than 1 element")
    if not ensemble_shape:
        return [model_class(*args, **kwargs).to(device)]
    if ensemble_shape[0] <= 0:
        raise ValueError(f"num_models {ensemble_shape[0]} should be > 0")
    return [model_class(*args, **kwargs).to(device) for _ in range(ensemble_shape[0])]


def _with_weights(function):
    """Returns a function of weights and a tuple of inputs."""
    def call(weights, inputs):
        return function(weights, *inputs)
    return call


def _with_state(function):
    """Returns a function of weights, buffers and a tuple of inputs."""
    def call(weights, buffers, inputs):
        return function(weights, buffers, *inputs)
    return call


def functional_init(model_class, ensemble_shape=(), device="cpu"):
    """Returns a function that creates modules and returns (stacked weights, function of weights and
    a tuple of inputs, names).

    The modules must not have buffers.
    """
    def made(*args, **kwargs):
        models = _models(model_class, ensemble_shape, device, args, kwargs)
        if any(next(iter(m.buffers()), None) is not None for m in models):
            raise RuntimeError("make_functional_deprecated_v1(model): `model` has buffers. Please use make_functional_with_buffers_deprecated_v1(model) "
                               "instead.")
        functions, weights = zip(*[FunctionalModule._create_from(m) for m in models])
        return _stacked(weights) if ensemble_shape else weights[0], _with_weights(functions[0]), functions[0].param_names
    return made


def functional_init_with_buffers(model_class, ensemble_shape=(), device="cpu"):
    """Like `functional_init`, for modules with buffers.

    The created function returns (weights, buffers, function of both and a tuple of inputs, names of
    weights, names of buffers).
    """
    def made(*args, **kwargs):
        functions, weights, buffers = zip(*[make_functional_with_buffers(m) for m in _models(model_class, ensemble_shape, device, args, kwargs)])
        f = functions[0]
        if ensemble_shape:
            weights, buffers = [_stacked(weights)], [_stacked(buffers)]
        return weights[0], buffers[0], _with_state(f), f.param_names, f.buffer_names
    return made
