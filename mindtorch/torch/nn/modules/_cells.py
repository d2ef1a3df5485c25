"""MindSpore Cells as children of a Module.

A Cell that a Module takes as a child becomes a Module itself: the object stays, its class becomes one that stands below both its own
class and Module.  So everything that goes through a network (parameters, state dicts, modes, casts, hooks, libraries that read
`_modules` and `_parameters`) finds it as it finds any other child, while a call still computes what the Cell's `construct` says.
"""
from collections import OrderedDict

from mindtorch.backend.mindspore.cell import BORROWED_BY_CELLS, Cell, NOT_A_CHILD, new_cell, parameter_tuple
from mindtorch.backend.mindspore.jit_fallback import pynative
from mindtorch.core import autocast
from mindtorch.core.tensor import Parameter, adopt, taken
from mindtorch.torch.nn.modules import _state
from mindtorch.torch.nn.modules._hooks import WrappedHook
from mindtorch.torch.nn.modules.module import HOOKS, Module

#: What Cell.__init__ keeps under other names, or in another form, than Module.
_HELD_OTHERWISE = ("_params", "_cells", "_lazy_non_persistent_buffers_set", "_lazy_state_dict_hooks", "_lazy_state_dict_pre_hooks",
                   "_lazy_load_state_dict_pre_hooks", "_lazy_load_state_dict_post_hooks")


class ChildCell(Module, Cell):
    """What a Cell gains when it becomes a child of a Module.  Its own class comes first."""

    _mindtorch_native = True        # the code of its construct is MindSpore's

    def forward(self, *args, **kwargs):
        """The Cell's own call, hooks and mixed precision of MindSpore's included; eager in graph mode, like all that a Module runs.

        MindSpore's ops know nothing of autocast: there a Cell computes in the dtype of its parameters.
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
        if name in params and taken(value) and not taken(value, Parameter) and params[name] is not None:
            params[name].set_data(value)            # so does MindSpore
        elif isinstance(value, parameter_tuple):
            for p in value:
                self.register_parameter_of_any_name(p)
            object.__setattr__(self, name, value)
        else:
            Module.__setattr__(self, name, value)

    def register_parameter_of_any_name(self, param):
        """Members of a ParameterTuple stand under their own names, which may have dots."""
        if taken(param, Parameter):
            self._parameters[param.name] = param

    # SequentialCell and its like put whole dicts there.
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
        setattr(ChildCell, _name, _descriptor)       # before Cell's own
del _name, _descriptor


def _rebuild(cls):
    child = _child_class(cls)
    return child.__new__(child)


def _child_class(cls):
    """The class that a Cell of class `cls` gets as a child."""
    made = cls.__dict__.get("_mindtorch_child_class")
    if made is None:
        made = type(cls)(cls.__name__, (cls, ChildCell), {
            "__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__, "_mindtorch_native_class": cls})
        cls._mindtorch_child_class = made
    return made


def is_child(parent, cell):
    """Whether a Cell that `parent` is given counts among its children: not an optimizer, nor one around the module itself."""
    if "_cells" not in cell.__dict__:
        raise AttributeError(f"cannot assign {type(cell).__name__} as a child module before its Cell.__init__() was called")
    return not isinstance(cell, NOT_A_CHILD) and all(c is not parent for _, c in cell.cells_and_names())


def adopt_cell(cell, training):
    """Makes a Cell, and all below it, a Module; the object stays the same.

    `training` is the parent's mode, which a Cell takes that has never been told its own: MindSpore's stand in inference mode until
    `set_train`, torch's modules in training mode until `eval`.
    """
    d = cell.__dict__
    told = d["training"] or d["_phase"] != "train"
    held = {name: d.pop(name) for name in _HELD_OTHERWISE}
    d["_parameters"], d["_modules"] = {}, held["_cells"]
    for name, p in held["_params"].items():
        if p is not None:
            if p.has_init:
                p.init_data()
            p = adopt(p if p.inited_param is None else p.inited_param)
        d["_parameters"][name] = p
    d["_buffers"] = {name: None if b is None else adopt(b) for name, b in d["_buffers"].items()}
    d["_non_persistent_buffers_set"] = held["_lazy_non_persistent_buffers_set"] or set()
    for name in HOOKS:
        d[name] = OrderedDict()
    for name in ("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"):
        for i, hook in (held["_lazy" + name] or {}).items():
            d[name][("native", i)] = WrappedHook(hook, cell) if name == "_load_state_dict_pre_hooks" else hook
    d["_is_full_backward_hook"] = None
    d["_init_flag"] = d["_is_check_and_refresh"] = True       # what the first call of a Cell would see to
    cell.__class__ = _child_class(type(cell))
    for _ in cell.modules():
        pass                # (walking adopts)
    if training and not told:
        cell.train()
    return cell


def _as_ours(out):
    """`out`, its tensors ours (the objects stay: asking for their class is enough)."""
    if not taken(out) and isinstance(out, (tuple, list, dict)):
        for x in out.values() if isinstance(out, dict) else out:
            _as_ours(x)
    return out


_state.adopt_cell, _state.is_child = adopt_cell, is_child
