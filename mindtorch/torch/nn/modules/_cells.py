"""MindSpore Cells as children of a Module.

A Cell that is assigned to a Module becomes a Module itself: the object stays the same, and its
class is replaced by a subclass of both its own class and Module. So everything that traverses a
network (parameters, state dicts, modes, casts, hooks, libraries that read `_modules` and
`_parameters`) handles it like any other child, while a call still runs the Cell's `construct`.
"""
from collections import OrderedDict

from mindtorch.backend.mindspore.cell import BORROWED_BY_CELLS, Cell, NOT_A_CHILD, new_cell, parameter_tuple
from mindtorch.backend.mindspore.jit_fallback import pynative
from mindtorch.core.dispatch import autocast
from mindtorch.core.tensor.tensor import Parameter, adopt, is_tensor
from mindtorch.torch.nn.modules import _state
from mindtorch.torch.nn.modules._hooks import WrappedHook
from mindtorch.torch.nn.modules.module import HOOKS, Module

#: Attributes that Cell.__init__ stores under a different name or in a different form than Module.
_HELD_OTHERWISE = ("_params", "_cells", "_lazy_non_persistent_buffers_set", "_lazy_state_dict_hooks", "_lazy_state_dict_pre_hooks",
                   "_lazy_load_state_dict_pre_hooks", "_lazy_load_state_dict_post_hooks")


class ChildCell(Module, Cell):
    """Base class added to a Cell that becomes a child of a Module. The Cell's own class comes first
    in the MRO."""

    _mindtorch_native = True  # construct() is MindSpore code

    def forward(self, *args, **kwargs):
        """Runs the Cell's own call, including MindSpore's hooks and mixed precision.

        The call is eager even in graph mode, like everything that a Module runs. MindSpore's ops
        ignore autocast: under autocast a Cell computes in the dtype of its parameters.
        """
        if autocast.state.to is not None or autocast.state.there is not None:
            dtype = next((p.dtype for p in self.parameters() if p.is_floating_point()), None)
            if dtype is not None:
                return autocast.call_in(str(dtype).removeprefix("torch."), self._run_native, args, kwargs)
        return self._run_native(*args, **kwargs)

    def _run_native(self, *args, **kwargs):
        with pynative():
            return _as_ours(Cell.__call__(self, *args, **kwargs))

    def __setattr__(self, name, value):
        params = self.__dict__.get("_parameters", ())
        if name in params and is_tensor(value) and not is_tensor(value, Parameter) and params[name] is not None:
            params[name].set_data(value)  # like MindSpore
        elif isinstance(value, parameter_tuple):
            for p in value:
                self.register_parameter_of_any_name(p)
            object.__setattr__(self, name, value)
        else:
            Module.__setattr__(self, name, value)

    def register_parameter_of_any_name(self, param):
        """Registers a member of a ParameterTuple under its own name, which may contain dots."""
        if is_tensor(param, Parameter):
            self._parameters[param.name] = param

    # SequentialCell and similar classes assign entire dicts to it.
    @property
    def _cells(self):
        return self.__dict__["_modules"]

    @_cells.setter
    def _cells(self, value):
        self.__dict__["_modules"] = value

    def extra_repr(self):
        return self.extend_repr()

    def __new__(cls, *args, **kwargs):
        return new_cell(cls)

    __str__ = object.__str__

    def __bool__(self):
        return Cell.__bool__(self)

    def __del__(self, _cell=Cell):
        _cell.__del__(self)

    def __reduce_ex__(self, protocol):
        return _rebuild, (type(self)._mindtorch_native_class,), self.__getstate__()


for _name, _descriptor in BORROWED_BY_CELLS.items():
    if not hasattr(Module, _name) and _name not in vars(ChildCell):
        setattr(ChildCell, _name, _descriptor)  # takes precedence over Cell's own
del _name, _descriptor


def _rebuild(cls):
    child = _child_class(cls)
    return child.__new__(child)


def _child_class(cls):
    """Returns the class that a Cell of class `cls` gets as a child."""
    made = cls.__dict__.get("_mindtorch_child_class")
    if made is None:
        made = type(cls)(cls.__name__, (cls, ChildCell), {
            "__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__, "_mindtorch_native_class": cls})
        cls._mindtorch_child_class = made
    return made


def is_child(parent, cell):
    """True if a Cell assigned to `parent` becomes its child: not an optimizer, and not a Cell that
    contains the module itself."""
    if "_cells" not in cell.__dict__:
        raise AttributeError(f"cannot assign {type(cell).__name__} as a child module before its Cell.__init__() was called")
    return not isinstance(cell, NOT_A_CHILD) and all(c is not parent for _, c in cell.cells_and_names())


def adopt_cell(cell, training):
    """Turns a Cell and all its descendants into Modules, in place.

    `training` is the parent's mode. A Cell without an explicit mode adopts it: MindSpore's Cells
    are in inference mode until `set_train`, PyTorch's modules in training mode until `eval`.
    """
    d = cell.__dict__
    mode_was_set = d["training"] or d["_phase"] != "train"
    saved = {name: d.pop(name) for name in _HELD_OTHERWISE}
    d["_parameters"], d["_modules"] = {}, saved["_cells"]
    for name, p in saved["_params"].items():
        if p is not None:
            if p.has_init:
                p.init_data()
            p = adopt(p if p.inited_param is None else p.inited_param)
        d["_parameters"][name] = p
    d["_buffers"] = {name: None if b is None else adopt(b) for name, b in d["_buffers"].items()}
    d["_non_persistent_buffers_set"] = saved["_lazy_non_persistent_buffers_set"] or set()
    for name in HOOKS:
        d[name] = OrderedDict()
    for name in ("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"):
        for i, hook in (saved["_lazy" + name] or {}).items():
            d[name][("native", i)] = WrappedHook(hook, cell) if name == "_load_state_dict_pre_hooks" else hook
    d["_is_full_backward_hook"] = None
    d["_init_flag"] = d["_is_check_and_refresh"] = True  # skips the checks of a Cell's first call
    cell.__class__ = _child_class(type(cell))
    for _ in cell.modules():
        pass  # (the traversal adopts the children)
    if training and not mode_was_set:
        cell.train()
    return cell


def _as_ours(out):
    """Returns `out` with its tensors adopted. The objects stay the same: checking their class
    adopts them."""
    if not is_tensor(out) and isinstance(out, (tuple, list, dict)):
        for x in out.values() if isinstance(out, dict) else out:
            _as_ours(x)
    return out


_state.adopt_cell, _state.is_child = adopt_cell, is_child
