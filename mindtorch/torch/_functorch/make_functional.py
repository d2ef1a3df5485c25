"""Modules as functions of a tuple of parameters and a tuple of buffers (functorch's older way; torch.func.functional_call is the newer)."""
import copy

from mindtorch.core.table import TABLE
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.nn.utils.stateless import _reparametrize_module

__all__ = ["FunctionalModule", "FunctionalModuleWithBuffers", "make_functional", "make_functional_with_buffers", "combine_state_for_ensemble",
           "functional_init", "functional_init_with_buffers", "create_names_map", "extract_weights", "extract_buffers"]

_KINDS = {"parameters": "_parameters", "buffers": "_buffers"}


def create_names_map(named_params, tied_named_params):
    """{name: all names of the same tensor} for the names of `named_params`, in the order of both."""
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
    """(tensors of a kind, each once; their names; all names of each); in the module tensors without memory take their places."""
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
    """(parameters, their names, {name: all names of it}); the module keeps parameters of the same shape on the meta device."""
    return _members(mod, "parameters")


def extract_buffers(mod):
    """The same for buffers."""
    return _members(mod, "buffers")


class _Stateless(Module):
    """A module without parameters of its own, called with what shall stand in their places."""

    def _run(self, names_map, names, tensors, args, kwargs):
        given = {n: t for name, t in zip(names, tensors) for n in names_map[name]}
        with _reparametrize_module(self.stateless_model, given):
            return self.stateless_model(*args, **kwargs)


class FunctionalModule(_Stateless):
    """A module as a function: called with a sequence of parameters, then with the module's arguments."""

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
        """The module's result with these parameters."""
        return self._run(self.names_map, self.param_names, params, args, kwargs)


class FunctionalModuleWithBuffers(_Stateless):
    """A module as a function: called with parameters, buffers, then with the module's arguments."""

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
        """The module's result with these parameters and buffers."""
        return self._run(self.all_names_map, self.param_names + self.buffer_names, tuple(params) + tuple(buffers), args, kwargs)


def make_functional(model, disable_autograd_tracking=False):
    """(FunctionalModule, its parameters) of a copy of a module without buffers."""
    if next(iter(model.buffers()), None) is not None:
        raise RuntimeError("make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead.")
    return FunctionalModule._create_from(model, disable_autograd_tracking=disable_autograd_tracking)


def make_functional_with_buffers(model, disable_autograd_tracking=False):
    """(FunctionalModuleWithBuffers, parameters, buffers) of a copy of a module."""
    return FunctionalModuleWithBuffers._create_from(model, disable_autograd_tracking=disable_autograd_tracking)


def _stacked(rows):
    stack = TABLE["stack"].fn
    return tuple([stack(list(column), 0).detach() for column in zip(*rows)])


def combine_state_for_ensemble(models):
    """(one functional module, stacked parameters, stacked buffers) of modules of one class, for `vmap` over the first dimension."""
    if not models:
        raise RuntimeError("combine_state_for_ensemble: Expected at least one model, got 0.")
    if any(m.training for m in models) and not all(m.training for m in models):
        raise RuntimeError("combine_state_for_ensemble: Expected all models to have the same training/eval mode.")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("combine_state_for_ensemble: Expected all models to be of the same class.")
    functions, params, buffers = zip(*[make_functional_with_buffers(m) for m in models])
    stack = TABLE["stack"].fn
    return functions[0], tuple([stack(list(c), 0).detach() for c in zip(*params)]), tuple([stack(list(c), 0) for c in zip(*buffers)])


def _models(model_class, ensemble_shape, device, args, kwargs):
    """As many modules as the shape says, on a device."""
    if len(ensemble_shape) >= 2:
        raise ValueError("NYI: ensemble_shape with more than 1 element")
    if not ensemble_shape:
        return [model_class(*args, **kwargs).to(device)]
    if ensemble_shape[0] <= 0:
        raise ValueError(f"num_models {ensemble_shape[0]} should be > 0")
    return [model_class(*args, **kwargs).to(device) for _ in range(ensemble_shape[0])]


def _with_weights(function):
    """The function of weights and a tuple of inputs."""
    def call(weights, inputs):
        return function(weights, *inputs)
    return call


def _with_state(function):
    """The function of weights, buffers and a tuple of inputs."""
    def call(weights, buffers, inputs):
        return function(weights, buffers, *inputs)
    return call


def functional_init(model_class, ensemble_shape=(), device="cpu"):
    """A function that makes modules and gives (stacked weights, function of weights and a tuple of inputs, names); the modules have no buffers."""
    def made(*args, **kwargs):
        models = _models(model_class, ensemble_shape, device, args, kwargs)
        if any(next(iter(m.buffers()), None) is not None for m in models):
            raise RuntimeError("make_functional_deprecated_v1(model): `model` has buffers. Please use make_functional_with_buffers_deprecated_v1(model) "
                               "instead.")
        functions, weights = zip(*[FunctionalModule._create_from(m) for m in models])
        return _stacked(weights) if ensemble_shape else weights[0], _with_weights(functions[0]), functions[0].param_names
    return made


def functional_init_with_buffers(model_class, ensemble_shape=(), device="cpu"):
    """The same for modules with buffers: (weights, buffers, function of both and a tuple of inputs, names of weights, names of buffers)."""
    def made(*args, **kwargs):
        functions, weights, buffers = zip(*[make_functional_with_buffers(m) for m in _models(model_class, ensemble_shape, device, args, kwargs)])
        f = functions[0]
        if ensemble_shape:
            weights, buffers = [_stacked(weights)], [_stacked(buffers)]
        return weights[0], buffers[0], _with_state(f), f.param_names, f.buffer_names
    return made
