"""MindSpore's view of a Module: the Cell interface, resolved only when MindSpore accesses it.

`isinstance(module, mindspore.nn.Cell)` is true, so ms.Model, MindSpore optimizers,
load_param_into_net and similar functions accept a Module. Module does not inherit from Cell. Cell's
constructor, attribute protocol and call would cost more than a small layer, and would forbid names
(`phase`, `cells`, ...) that models use. Cell's C++ part would also forbid what Python does with
objects (pickle protocols 0 and 1, `object.__new__`, further bases with a layout, reading the source
of all bases). So Module is a plain class. Cell's metaclass answers isinstance() for it, and
`Module.__getattr__` finds every name that a Cell has, after any attribute of the user's object with
that name.
"""
import contextlib
import functools
import sys
import time
import types
import weakref
from abc import ABCMeta
from collections import OrderedDict
from typing import Any

import mindtorch.backend.mindspore.at_exit  # noqa: F401
from mindtorch.backend.hooks import hooks
from mindtorch.backend.cpython import set_class
from mindtorch.backend.mindspore import graph_mode_step
from mindtorch.backend.mindspore.parallel_context import refuse_shard
from mindtorch.backend.mindspore.patches import put
from mindtorch.backend.mindspore.private import MixedPrecisionType, executor
from mindtorch.backend.mindspore.runtime import ms

Cell: Any = ms.nn.Cell
#: Cells that belong to no network: an optimizer's state is not part of the state of the module that
#: holds it.
NOT_A_CHILD = (ms.nn.Optimizer,)
parameter_tuple = ms.ParameterTuple


class _Nothing:
    """Placeholder for Module until it is defined."""


#: Module, once the layer above has registered it with `be_a_cell`.
module_class: type = _Nothing


def is_module(obj):
    """True if an object is a Module, or a Cell that has become one."""
    return isinstance(obj, module_class)


# ------------------------------------------------------------------ isinstance(module, Cell)
class _CellKind(ABCMeta):
    """Metaclass of Cell (but not of its subclasses), which counts Modules as Cells."""

    def __new__(mcs, name, bases, body, **kwargs):
        # The subclass gets the metaclass that it would have without this one.
        kind = ABCMeta if any(issubclass(type(b), ABCMeta) and type(b) is not _CellKind for b in bases) else type
        cls = kind.__new__(mcs, name, bases, body, **kwargs)
        if mcs is _CellKind:
            set_class(cls, kind)
        return cls

    def __init__(cls, name, bases, body, **kwargs):
        type.__init__(cls, name, bases, body)

    def __instancecheck__(cls, obj):
        return type.__instancecheck__(cls, obj) or isinstance(obj, module_class)

    def __subclasscheck__(cls, sub):
        return type.__subclasscheck__(cls, sub) or type.__subclasscheck__(module_class, sub)


# id of a Module -> (weak reference to it, its substitute code object)
_codes: dict[int, tuple[Any, types.CodeType]] = {}


def _code(module):
    found = _codes.get(id(module))
    if found is None:
        key = id(module)
        code = _in_precision.__code__.replace(co_name=f"{type(module).__name__}_{key}")
        found = _codes[key] = weakref.ref(module, lambda _, drop=_codes.pop: drop(key, None)), code
    return found[1]


@contextlib.contextmanager
def as_function(obj):
    """Gives a Module a `__code__` and a `__name__` while it is passed to MindSpore's autograd.

    MindSpore's autograd treats an object that does not inherit from Cell as a function, and
    identifies it by name and code.
    """
    if not is_module(obj) or type.__instancecheck__(Cell, obj) or "__code__" in obj.__dict__:
        yield
        return
    own, added = obj.__dict__, {"__code__": _code(obj), "__name__": type(obj).__name__}
    added = {name: value for name, value in added.items() if name not in own}
    own.update(added)
    try:
        yield
    finally:
        for name in added:
            own.pop(name, None)


def new_cell(cls):
    """Creates an object of a Cell subclass and runs only the C++ part of its constructor, so that
    MindSpore can inspect it."""
    native = Cell.__bases__[0]
    self = native.__new__(cls)
    native.__init__(self, f"{cls.__module__}.{cls.__qualname__}")
    return self


def be_a_cell(cls):
    """Makes Modules (instances of `cls`) count as Cells."""
    global module_class
    module_class = _home.cell_contents = cls
    if type(Cell) is not _CellKind:
        # Assigning `__class__` raises an error, because `type` counts as immutable.
        set_class(Cell, _CellKind)


class NonDataDescriptor:
    """A name provided by Cell; `Module.__getattr__` resolves it if the Module has no attribute of
    that name.

    In classes that derive from both Cell and Module it is installed as a descriptor, where it hides
    Cell's own attribute.
    """

    __slots__ = ("name", "value")

    def __init__(self, name, value):
        self.name, self.value = name, value

    def __get__(self, obj, cls=None):
        if obj is not None:
            own = obj.__dict__
            for holder in ("_parameters", "_buffers", "_modules"):
                entries = own.get(holder)
                if entries is not None and self.name in entries:
                    return entries[self.name]
        return self.resolve(obj, cls)

    def resolve(self, obj, cls):
        get = getattr(type(self.value), "__get__", None)
        return self.value if get is None else get(self.value, obj, cls)


class _State(NonDataDescriptor):
    """Per-object state of a Cell, created at the first access."""

    __slots__ = ()

    def resolve(self, obj, cls):
        if obj is None:
            return self
        made = obj.__dict__[self.name] = self.value()
        return made


class _Derived(NonDataDescriptor):
    """An attribute computed from the Module at every access."""

    __slots__ = ()

    def resolve(self, obj, cls):
        return self if obj is None else self.value(obj)


def _set_requires_grad(module, value):
    """Handles an assignment to `requires_grad`.

    MindSpore sets it around the call of a Cell whose gradient it computes (`value_and_grad(module,
    ...)`). Only then does the call open and close a graph in MindSpore's autograd. If user code
    sets an attribute of that name, it is just a value.
    """
    if _called_by_mindspore():
        module.__dict__["_ms_top"] = bool(value)
        _set_entry(module)


def _called_by_mindspore():
    frame = sys._getframe(2)
    # Skip the frames of Module.__setattr__.
    while frame is not None and frame.f_code.co_name == "__setattr__":
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__", "").startswith("mindspore.")


def _in_another_precision(module, value):
    """Handles an assignment to `mixed_precision_type` by `to_float` or `auto_mixed_precision`:
    later calls compute in that precision."""
    _set_entry(module)


#: Attribute of a Module -> function to call after the attribute is set.
AFTER_SETTING = {"requires_grad": _set_requires_grad, "mixed_precision_type": _in_another_precision}


def _set_entry(module):
    """Selects the function that a call of `module` goes through, if any: `_as_top_cell` or
    `_in_precision`."""
    own = module.__dict__
    kind = own.get("mixed_precision_type")
    if own.get("_ms_top"):
        own["_compiled_call_impl"] = functools.partial(_as_top_cell, module)
    elif kind is not None:
        own["_compiled_call_impl"] = functools.partial(_in_precision, module)
    else:
        own["_compiled_call_impl"] = None


def _as_top_cell(module, *args, **kwargs):
    call = module._call_impl if module.__dict__.get("mixed_precision_type") is None else functools.partial(_in_precision, module)
    if not kwargs and graph_mode_step.records(module, args):
        return graph_mode_step.ran(module, args, call(*args))
    if executor.grad_flag():
        return call(*args, **kwargs)
    executor.set_grad_flag(True)
    with as_function(module):
        executor.new_graph(module, *args, **kwargs)
        out = call(*args, **kwargs)
        executor.end_graph(module, out, *args, **kwargs)
    return out


def _in_precision(module, *args, **kwargs):
    kind = module.__dict__["mixed_precision_type"]
    return hooks.autocast_call_in(_PRECISIONS.get(kind, kind), module._call_impl, args, kwargs)


_PRECISIONS = {MixedPrecisionType.FP16: "float16", MixedPrecisionType.BF16: "bfloat16", MixedPrecisionType.FP32: "float32"}

_amp: Any = sys.modules["mindspore.train.amp"]
_rewrite, _decorate = _amp._auto_mixed_precision_rewrite, _amp._set_amp_decorator


def _rewrite_or_autocast(network, dtype, *, white_list=None, black_list=None):
    """Applies level O1: MindSpore rewrites a Cell's source so that the ops of a list compute in
    half precision. A Module gets an autocast region instead."""
    if not is_module(network):
        return _rewrite(network, dtype, white_list=white_list, black_list=black_list)
    if white_list is None or list(white_list) != list(_amp.AMP_WHITE_LIST):
        raise NotImplementedError(f"custom_mixed_precision with custom lists is not supported for {type(network).__name__}, a torch-style "
                                  f"module (dtype {dtype}, device {ms.get_context('device_target')}): the lists name "
                                  "MindSpore cells; use torch.autocast, or to_float on its submodules")
    network.mixed_precision_type = "float32 result, autocast " + _half(dtype)
    return network


def _half(dtype):
    return "float16" if dtype == ms.float16 else "bfloat16"


def _decorate_or_autocast(obj, amp_level, amp_dtype, white_list, black_list):
    """Applies level "auto": MindSpore chooses the precision of each op from its lists. A Module
    gets an autocast region instead."""
    if not is_module(obj):
        return _decorate(obj, amp_level, amp_dtype, white_list, black_list)
    obj.mixed_precision_type = "autocast " + _half(amp_dtype)
    # Only MindSpore's own dispatch, which is not involved here, reads it, and it cannot be copied.
    obj.__dict__.pop("amp_strategy", None)
    return obj


put("mindspore.train.amp:_auto_mixed_precision_rewrite", _rewrite_or_autocast)
put("mindspore.train.amp:_set_amp_decorator", _decorate_or_autocast)

_native_output = _amp._OutputTo32.construct


def _output_to_float32(self, *args, **kwargs):
    """Casts a network's result to float32.

    Levels O2 and O3 wrap the network in a Cell that casts its result. The result of a Module is
    cast by the facade, so that the cast is part of the facade's autograd graph.
    """
    if not is_module(self._backbone):
        return _native_output(self, *args, **kwargs)
    return hooks.to_float32(self._backbone(*args, **kwargs))


put("mindspore.train.amp:_OutputTo32.construct", _output_to_float32)


class _AsCell:
    """Cell's interface in terms of a Module. These functions are borrowed, too."""

    def shard(self, in_strategy, *args, **kwargs):
        """Calls Cell.shard on devices that split operators; raises NotImplementedError on others.
        """
        refuse_shard(f"{type(self).__name__}.shard")
        return Cell.shard(self, in_strategy, *args, **kwargs)

    def _add_mixed_precision_flag(self, **flags):
        """Sets the dtype requested by `to_float`."""
        for name, kind in (("fp16", MixedPrecisionType.FP16), ("fp32", MixedPrecisionType.FP32), ("bf16", MixedPrecisionType.BF16)):
            if flags.get(name, False):
                self.mixed_precision_type = kind

    def insert_child_to_cell(self, child_name, child_cell):
        """Like `add_module`."""
        self.add_module(child_name, child_cell)

    def insert_param_to_cell(self, param_name, param, check_name_contain_dot=True):
        """Like `register_parameter`."""
        self.register_parameter(param_name, param)

    def parameters_and_names(self, name_prefix="", expand=True):
        """Yields (dotted name, parameter) pairs and gives the parameters these names for
        MindSpore's use.

        Persistent buffers (BatchNorm's running statistics) are included, as non-trainable
        parameters on the buffers' memory. In MindSpore they are parameters, and a checkpoint
        without them would lose them.
        """
        pairs = _parameters_and_buffers(self, expand)
        _assign_names(pairs)
        for name, p in pairs:
            yield (f"{name_prefix}.{name}" if name_prefix else name), p

    def cells_and_names(self, cells=None, name_prefix=""):
        """Returns (dotted name, module) pairs of this module and all its descendants.

        A Cell that contains a module calls this to traverse the `_params` and reads the parameters'
        names, so the names are assigned first.
        """
        _assign_names(_parameters_and_buffers(self, True))
        return self.named_modules(memo=set() if cells is None else cells, prefix=name_prefix)

    def init_parameters_data(self, auto_parallel_mode=False):
        """Returns an empty dict: a Module's parameters are initialized from the beginning."""
        return {}

    def set_train(self, mode=True):
        """Sets training mode of this module and all its descendants, like `train()`."""
        self.__dict__["_phase"] = "train" if mode else "predict"
        return self.train(bool(mode))

    def add_flags_recursive(self, **flags):
        """Sets flags of this module and all its descendants. The flag `training`, by which an
        enclosing Cell passes its mode, calls `set_train`."""
        if "training" in flags:
            self.set_train(flags.pop("training"))
        if flags:
            self.add_flags(**flags)
            for child in self.children():
                child.add_flags_recursive(**flags)
        return self


def _native_parameters(module):
    """Returns name -> Parameter of a module's own parameters as MindSpore sees them: its
    parameters, and its persistent buffers as frozen ones.

    In MindSpore running statistics are parameters, and a checkpoint loses everything that is not a
    parameter. The Parameter of a buffer uses the buffer's memory and is the same object at every
    call. If the buffer has been replaced, the Parameter moves to the new buffer.
    """
    own = module.__dict__
    found, buffers = {name: p for name, p in own.get("_parameters", {}).items() if p is not None}, own.get("_buffers")
    if not buffers:
        return found
    hidden, cached = own.get("_non_persistent_buffers_set", ()), own.setdefault("_native_buffers", {})
    for name, b in buffers.items():
        if b is not None and name not in hidden:
            p = cached.get(name)
            if p is None or p.__class__ is str or p.device != b.device:
                known = p if p is None or p.__class__ is str else p.name
                p = cached[name] = hooks.parameter_class(b, requires_grad=False)
                if known is not None:
                    p.name = known
            elif p._array is not b._array:
                hooks.rebase_parameter(p, b)
            found[name] = p
    return found


def _parameters_and_buffers(module, expand):
    """Returns (dotted name, Parameter) pairs of everything that MindSpore treats as a module's
    parameters: parameters first, then buffers."""
    pairs, seen = list(module.named_parameters(recurse=expand)), set()
    for prefix, m in module.named_modules() if expand else [("", module)]:
        buffers = m.__dict__.get("_buffers")
        if buffers:
            for name, p in _native_parameters(m).items():
                if name in buffers and id(buffers[name]) not in seen:
                    seen.add(id(buffers[name]))
                    pairs.append((f"{prefix}.{name}" if prefix else name, p))
    return pairs


def is_buffer(module, param):
    """True if a Parameter that was passed to MindSpore represents one of this module's own buffers.
    """
    return any(p is param for p in module.__dict__.get("_native_buffers", {}).values())


def _assign_names(pairs):
    """Names parameters by their path in this module.

    If some parameters already bear such names with a prefix (names were assigned for an enclosing
    module or cell earlier), the prefix is kept.
    """
    # functional_call puts plain tensors there
    prefix, pairs = "", [pair for pair in pairs if isinstance(pair[1], hooks.parameter_class)]
    for name, p in pairs:
        current = p.name
        if current.endswith(name) and current[:len(current) - len(name)][-1:] in ("", "."):
            prefix = current[:len(current) - len(name)]
            break
    for name, p in pairs:
        if p.name != prefix + name:
            p.name = prefix + name


def forget_names(module):
    """Removes the names that parameters have from their path in this Cell, because it becomes a
    part of another module."""
    for name, p in module.named_parameters():
        if p.name == name:
            p.name = None


# `super()` in Cell's functions rejects objects that do not inherit from Cell: on a Module they run
# as functions of Module.
_home = types.CellType()


def _of_module(value):
    """Returns Cell's function, or property, with Module as the class that its `super()` starts
    from."""
    if isinstance(value, property):
        return property(*(f and _of_module(f) for f in (value.fget, value.fset, value.fdel)), value.__doc__)
    if isinstance(value, types.FunctionType) and "__class__" in value.__code__.co_freevars:
        closure = tuple(_home if name == "__class__" else cell for name, cell in zip(value.__code__.co_freevars, value.__closure__))
        f = types.FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, closure)
        f.__kwdefaults__ = value.__kwdefaults__
        return functools.update_wrapper(f, value)
    return value


def _borrow(adapted):
    own = {n for n in vars(_AsCell) if not n.startswith("__")}
    state = {
        "_params_list": OrderedDict, "_primitives": OrderedDict, "_jit_config_dict": dict, "_phase": lambda: "train",
        "_create_time": lambda: int(time.time() * 1e9), "_id": lambda: 1, "_param_prefix": str, "arguments_key": str,
        "_jit_graph_name": str, "_amp_level": str, "_auto_prefix": lambda: True,
    }
    for name in ("requires_grad", "is_top_cell", "_compiled", "_bprop_debug", "_is_recursion_hook", "has_bprop",
                 "_has_config_recompute", "grad_ops_label", "_is_check_and_refresh", "_init_flag"):
        state[name] = bool
    for name in ("_scope", "_compile_phase", "_parameter_layout_dict", "_parallel_parameter_name_list", "_in_strategy",
                 "_parallel_parameter_merge_net_dict", "_compile_cache", "_phase_cache", "_exist_objs", "_exist_names",
                 "_recompute_cell", "_lazy_construct_sig", "_lazy_forward_pre_hook",
                 "_lazy_forward_hook", "_lazy_backward_pre_hook", "_lazy_backward_hook", "_out_strategy",
                 "_lazy_forward_pre_hook_with_kwargs", "_lazy_forward_hook_with_kwargs", "_cell_backward_pre_hook",
                 "_lazy_forward_hook_always_called", "_cell_backward_hook", "cell_type", "_lazy_user_parameters",
                 "_dynamic_shape_inputs", "_has_mutable_args_list", "_shard_fn", "_saved_tensors_pack_hook",
                 "_saved_tensors_unpack_hook"):
        state[name] = lambda: None
    found = {}
    for name in dir(Cell):
        if name not in own and not (name.startswith("__") and name.endswith("__")):
            for cls in Cell.__mro__:
                if name in vars(cls):
                    found[name] = NonDataDescriptor(name, adapted(vars(cls)[name]))
                    break
    for name in own:
        found[name] = NonDataDescriptor(name, vars(_AsCell)[name])
    for name, make in state.items():
        found[name] = _State(name, make)
    for name, make in (("_cells", lambda m: m.__dict__.get("_modules", {})),
                       ("_params", _native_parameters),
                       ("construct", lambda m: m.forward)):
        found[name] = _Derived(name, make)
    found["requires_grad"] = NonDataDescriptor("requires_grad", False)
    found["mixed_precision_type"] = NonDataDescriptor("mixed_precision_type", None)
    return found


#: Name -> Borrowed for the names that a Module has only because it counts as a Cell, and the same
#: for Cells that have become Modules.
BORROWED, BORROWED_BY_CELLS = _borrow(_of_module), _borrow(lambda value: value)


def borrowed(module, name):
    """Returns the attribute `name` that a Module has as a Cell; raises AttributeError if a Cell has
    no such attribute."""
    found = BORROWED.get(name)
    if found is None:
        raise AttributeError(f"'{type(module).__name__}' object has no attribute '{name}'")
    return found.resolve(module, type(module))
