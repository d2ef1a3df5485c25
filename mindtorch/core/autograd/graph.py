"""Nodes of the autograd graph: saved tensors, hooks, and the AccumulateGrad nodes at the leaves."""
from __future__ import annotations

import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from mindtorch.backend.cpython import module_lock
from mindtorch.backend.interface import Sizes, NpDtype
from mindtorch.core.dispatch import dispatcher
from mindtorch.core.autograd import grad_mode
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.hooks import hooks
from mindtorch.core.tensor.tensor import ScalarOperand, SavedArray, Tensor, VersionCounter, shallow_copy, check_inplace_on_view, detached, is_tensor

sequence = itertools.count()

#: destination of a gradient: an output of a node, a leaf, or None
Edge: TypeAlias = "tuple[Node, int] | Tensor | None"


# ------------------------------------------------------------------ saved tensors
class _Out:
    """A node's own result, saved without a reference cycle: its memory, not the Tensor."""

    __slots__ = ("_array", "_handle", "_device", "idx", "ver", "at")

    def __init__(self, t: Tensor, idx: int) -> None:
        self._array, self._handle, self._device, self.idx = t._array, t._handle, t._device, idx
        ver = t._version_counter
        if ver is None:
            ver = t._version_counter = VersionCounter()
        self.ver, self.at = ver, ver.v


class _DualOut(_Out):
    """Like `_Out`, for a result with tangents."""

    __slots__ = ("tan",)

    def __init__(self, s: _Out, tan: dict[int, Tensor | None] | None) -> None:
        self._array, self._handle, self._device, self.idx, self.ver, self.at, self.tan = s._array, s._handle, s._device, s.idx, s.ver, s.at, tan


class _Packed:
    """Result of a saved-tensor pack hook, with the packed tensor's position in the graph.

    `edge`: None, a leaf, (node, output index), or the index alone for a result of the node that
    saved it.
    """

    __slots__ = ("value", "unpack", "edge")

    def __init__(self, value: object, unpack: Callable[[Any], Tensor], edge: Any) -> None:
        self.value, self.unpack, self.edge = value, unpack, edge


Pair: TypeAlias = "tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]"


class _HooksHere(threading.local):
    """This thread's saved-tensor hooks, innermost last.

    refused: the error message where hooks are forbidden, else None.
    """

    def __init__(self) -> None:
        self.pairs: list[Pair] = []
        self.refused: str | None = None
        #: operands that the running primitive packed before its kernel ran: (name, id) -> packed
        self.early: dict[tuple[str, int], Any] | None = None
        #: (version counter of the memory that the running op will overwrite, function that copies a
        #: tensor on it): hooks receive copies (`alias.computed`)
        self.overwritten: tuple[VersionCounter, Callable[[Tensor], Tensor]] | None = None
        #: callbacks of core/autograd/saves.py for the end of a kernel, and additional tensors that it saves
        self.later: list[Callable[[], None]] | None = None
        self.more: dict[str, Tensor | None] = {}
        #: True while auxiliary outputs of PyTorch's kernels are computed, which modes do not see
        self.aside = False


hooks_here = _HooksHere()
# total size of the stacks of all threads; tested first, as that is cheaper
saved_hooks: list[None] = []


def push_saved_hooks(pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]) -> None:
    """Makes this thread pack saved tensors from now on; RuntimeError where hooks are forbidden."""
    if hooks_here.refused is not None:
        raise RuntimeError(hooks_here.refused)
    hooks_here.pairs.append((pack, unpack))
    saved_hooks.append(None)
    _follow()


def pop_saved_hooks() -> None:
    """Removes the innermost pair; RuntimeError if there is none."""
    if not hooks_here.pairs:
        raise RuntimeError("there are no saved tensor hooks to remove")
    hooks_here.pairs.pop()
    saved_hooks.pop()
    _follow()


def get_saved_hooks() -> list[Pair]:
    """Returns a copy of the stack, for `restore_saved_hooks`."""
    return list(hooks_here.pairs)


def restore_saved_hooks(pairs: Sequence[Pair]) -> None:
    """Restores the stack, dropping hooks pushed during a backward pass."""
    have = hooks_here.pairs
    if len(have) != len(pairs) or any([a is not b for a, b in zip(have, pairs)]):
        del saved_hooks[:len(have)]
        have[:] = pairs
        saved_hooks.extend([None] * len(pairs))
        _follow()


_followed = False
_lock = module_lock(globals(), "_lock", threading.Lock)


def _follow() -> None:
    """Routes primitives through the layer "saves" (core/dispatch/primitives.py) while there are hooks."""
    global _followed
    with _lock:
        if bool(saved_hooks) is not _followed:
            _followed = not _followed
            (dispatcher.enable_layer if _followed else dispatcher.disable_layer)("primitives", "saves")


class Node:
    """One recorded operation (grad_fn).

    `_next_edges[i]` leads to input i: (node, output index), a leaf tensor, or None.
    """

    __slots__ = ("_prim", "_next_edges", "_saved", "_attrs", "_input_metadata", "_sequence_number", "_tensor_hooks", "_retains_grad", "_pre_hooks",
                 "_post_hooks", "_released", "_metadata",
                 "_leaf_nodes", "__weakref__")
    # a Primitive or another object with `inputs` and `backward`; None for a user function
    _prim: Any
    _next_edges: list[Edge]
    _saved: dict[str, Any] | None  # saved tensors; None if there are none or after they were freed
    _attrs: dict[str, Any] | None  # constants of the operation
    _input_metadata: tuple[tuple[Sizes, NpDtype] | None, ...]
    _sequence_number: int
    _tensor_hooks: dict[int, dict[int, Any]] | None  # output index -> hooks on its gradient
    # output index -> tensor that retains its gradient
    _retains_grad: dict[int, weakref.ref[Tensor]] | None
    _pre_hooks: dict[int, Callable[..., Any]] | None
    _post_hooks: dict[int, Callable[..., Any]] | None
    _released: bool
    _metadata: dict[Any, Any] | None
    _leaf_nodes: list[AccumulateGrad]  # its AccumulateGrad nodes, once queried: the graph keeps them alive

    def __getattr__(self, name: str) -> Any:
        # Rules read what the forward pass saved as attributes: c.a, c.out, c.dim, c.shapes, ...
        saved = Node._saved.__get__(self)          # type: ignore[union-attr, misc]
        if saved is not None and name in saved:
            s = saved[name]
            if s.__class__ is tuple:
                x, ver, at = s
                if ver.v == at and not x._detached_at:
                    return x
            elif s is None or s.__class__ is SavedArray:
                return s
            return _unpack(self, s, name)
        kw = Node._attrs.__get__(self)              # type: ignore[union-attr, misc]
        if kw is not None and name in kw:
            return kw[name]
        if name[:7] == "_saved_":
            found, value = saved_as(self, name[7:])
            if found:
                return value
        elif name[:11] == "_raw_saved_":
            key = _key_of(self, name[11:])
            if key is not None:
                return SavedTensor._of(self, key)
        if Node._released.__get__(self) and not name.startswith("__"):      # type: ignore[attr-defined, misc]
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have "
                "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
                "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or if "
                "you need to access saved tensors after calling backward.")
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    order: tuple[int, ...] | None = None        # see `primitive`

    # ---- methods for users of grad_fn
    def name(self) -> str:
        return type(self).__name__

    @property
    def metadata(self) -> dict[Any, Any]:
        if self._metadata is None:
            self._metadata = {}
        return self._metadata

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        out: list[tuple[Any, int]] = []
        for e in self._next_edges[:getattr(self._prim, "edges", None)]:
            if e is None:
                out.append((None, 0))
            elif isinstance(e, tuple):
                out.append(e)
            else:
                out.append((AccumulateGrad.of(e), 0))
        self._leaf_nodes = [n for n, _ in out if n.__class__ is AccumulateGrad]
        return tuple(out)

    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """fn(grad_inputs, grad_outputs) after this node ran; may return new grad_inputs."""
        return add_hook(self, "_post_hooks", fn)

    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """fn(grad_outputs) before this node runs; may return new grad_outputs."""
        return add_hook(self, "_pre_hooks", fn)

    def _sequence_nr(self) -> int:
        return self._sequence_number

    def _set_sequence_nr(self, number: int) -> None:
        """Sets the sequence number: of the nodes that are ready, the highest number runs first."""
        self._sequence_number = number

    def __call__(self, *gs: Tensor | None) -> Any:
        """Applies the gradient rule to gradients of the outputs; returns one gradient or a tuple.

        Hooks do not run, and the results are not reduced to the inputs' shapes.
        """
        if len(gs) != len(self._input_metadata):
            raise TypeError(f"expected {len(self._input_metadata)} arguments, got {len(gs)} instead")
        for g in gs:
            if g is not None and not is_tensor(g):
                raise TypeError(f"expected Tensor or None, got {type(g).__name__}")
        res = self._apply(list(gs))
        if res is None or isinstance(res, Tensor):
            res = (res,)
        out = [None if e is None else g for e, g in zip(self._next_edges, res)]
        return out[0] if len(out) == 1 else tuple(out)

    def _apply(self, gs: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return self._prim.backward(self, gs)


def new_node(cls: type[Node]) -> Any:
    n = object.__new__(cls)
    n._tensor_hooks = n._retains_grad = n._pre_hooks = n._post_hooks = n._saved = n._attrs = n._metadata = None
    n._released = False
    n._sequence_number = next(sequence)
    return n


def edge_to(x: Tensor) -> Edge:
    """Returns the edge for the gradient of a tensor that requires one.

    core/dispatch/primitives.py: `record` inlines this to save the call.
    """
    if x._creation_meta is not None:
        check_inplace_on_view(x)
    return (x._grad_fn_, x._output_nr) if x._grad_fn_ is not None else None if x._view_without_history else x


# ------------------------------------------------------------------ hooks
_hook_ids = itertools.count()
_unpickling = module_lock(globals(), "_unpickling", threading.Lock)


class RemovableHandle:
    """Handle of a registered hook; `remove()` or the end of a `with` block removes the hook.

    It holds weak references to the dictionaries (OrderedDicts), so it keeps no hook alive. When it
    is pickled or copied together with their owner, it becomes the handle of the copy's hook.
    """

    next_id = 0

    def __init__(self, hooks_dict: Any, *, extra_dict: Any = None) -> None:
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.id = next(_hook_ids)
        RemovableHandle.next_id = self.id + 1
        if extra_dict is None:
            extra_dict = ()
        elif isinstance(extra_dict, Mapping):
            extra_dict = (extra_dict,)
        self.extra_dict_ref = tuple([weakref.ref(d) for d in extra_dict])

    def remove(self) -> None:
        for ref in (self.hooks_dict_ref, *self.extra_dict_ref):
            d = ref()
            if d is not None:
                d.pop(self.id, None)

    def __getstate__(self) -> Any:
        return self.hooks_dict_ref(), self.id, tuple([ref() for ref in self.extra_dict_ref])

    def __setstate__(self, state: Any) -> None:
        global _hook_ids
        hooks, self.id, *extra = state
        # A dictionary that no longer exists leaves a handle without effect.
        self.hooks_dict_ref = weakref.ref(OrderedDict() if hooks is None else hooks)
        self.extra_dict_ref = tuple([weakref.ref(OrderedDict() if d is None else d) for d in (extra[0] if extra else ())])
        with _unpickling:
            # ids stay unique in the process that unpickles it
            if self.id >= RemovableHandle.next_id:
                RemovableHandle.next_id = self.id + 1
                _hook_ids = itertools.count(self.id + 1)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def add_hook(obj: Any, attr: str, fn: Callable[..., Any]) -> RemovableHandle:
    """Adds `fn` to the dictionary `obj.attr`, which is created if it is None."""
    d = getattr(obj, attr)
    if d is None:
        d = OrderedDict()
        setattr(obj, attr, d)
    h = RemovableHandle(d)
    d[h.id] = fn
    return h


def returned(fn: Callable[..., Any], new: Any, old: Sequence[Tensor | None]) -> tuple[Any, ...]:
    """Validates the gradients that a node's hook `fn` returned in place of `old`.

    They must be a tuple of the same length, each with the shape and dtype of the one it replaces.
    """
    who = f"hook '{getattr(fn, '__name__', '<unknown>')}' has"
    if not isinstance(new, tuple):
        raise TypeError(f"expected tuple, but hook returned '{type_name(new)}'")
    if len(new) != len(old):
        raise RuntimeError(f"{who} returned an incorrect number of values (got {len(new)}, but expected {len(old)})")
    for g, h in zip(old, new):
        if h is None or h is g:
            continue
        if not is_tensor(h):
            raise TypeError(f"expected Variable, but hook returned '{type_name(h)}'")
        if g is None:
            raise RuntimeError("can't replace a None gradient with a non-None value")
        if tuple(h.shape) != tuple(g.shape):
            raise RuntimeError(f"{who} changed the size of value")
        if h.dtype != g.dtype:
            raise RuntimeError(f"{who} changed the type of value (was {g.dtype} got {h.dtype})")
    return new


class AccumulateGrad(Node):
    """The end of the graph at a leaf: adds the incoming gradient to `variable.grad`.

    Edges lead to the leaf itself. The node is created on first access and lives as long as it is
    referenced by its users or by the graph from which it was accessed.
    """

    __slots__ = ("variable",)
    variable: Tensor

    @classmethod
    def of(cls, leaf: Tensor) -> AccumulateGrad:
        n = None if leaf._grad_accumulator is None else leaf._grad_accumulator()
        if n is None:
            n = new_node(cls)
            n._prim, n._next_edges, n.variable, n._sequence_number = None, [], leaf, (1 << 64) - 1
            leaf._grad_accumulator = weakref.ref(n)
        n._input_metadata = ((leaf._sizes, leaf._np_dtype),)
        return n

    def name(self) -> str:
        return "torch::autograd::AccumulateGrad"

    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """fn(grad_inputs, grad_outputs) after the gradient was accumulated; grad_inputs is ()."""
        return add_hook(self, "_post_hooks", fn)

    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """fn(grad_outputs) before the gradient is accumulated; may return another."""
        return add_hook(self, "_pre_hooks", fn)

    def _apply(self, gs: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        if gs[0] is not None:
            hooks.accumulate(self.variable, gs[0], grad_mode.mode.on)
        return ()


class SavedTensor:
    """A tensor saved by a node (node._raw_saved_<name>), on which hooks can be registered."""

    __slots__ = ("_node", "_key")
    _node: Node
    _key: str

    def __init__(self) -> None:
        raise RuntimeError("Trying to create a SavedTensor object from Python is forbidden.")

    @classmethod
    def _of(cls, node: Node, key: str) -> SavedTensor:
        self = object.__new__(cls)
        self._node, self._key = node, key
        return self

    def register_hooks(self, *hooks: Callable[..., Any]) -> None:
        """Takes (pack, unpack): calls pack(tensor) now and unpack(its result) at each use."""
        if len(hooks) != 2 or not all(map(callable, hooks)):
            raise TypeError("register_hooks(): incompatible function arguments. The following argument types are supported: "
                            "(pack_hook: function, unpack_hook: function)")
        node, key = self._node, self._key
        if node._released or node._saved is None:
            raise RuntimeError("Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values of the graph "
                               "are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward "
                               "through the graph a second time or if you need to access saved tensors after calling backward.")
        s = node._saved.get(key)
        if s is None:
            raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
        if s.__class__ is _Packed:
            raise RuntimeError("Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of hooks is "
                               "allowed at a time.")
        x = _unpack(node, s, key)
        edge = None if not x._requires_grad_ else s.idx if isinstance(s, _Out) else x if x._grad_fn_ is None else (x._grad_fn_, x._output_nr)
        node._saved[key] = _packed(x if isinstance(s, _Out) else detached(x), hooks[0], hooks[1], edge)


_ROLES = {"self": 0, "input": 0, "other": 1}
_CONSTANTS = {"dim": "axis", "keepdim": "keepdims"}


def _key_of(node: Node, name: str) -> str | None:
    """Returns the key of the saved tensor that PyTorch calls `name`, or None."""
    prim, saved = node._prim, node._saved or ()
    if name in saved:
        return name
    inputs = getattr(prim, "inputs", ())
    if name.startswith("result"):
        key = "out" + name[6:]
        return key if key in saved else None
    i = _ROLES.get(name)
    if i is None or i >= len(inputs):
        return None
    return inputs[i] if inputs[i] in saved or not node._released and inputs[i] in prim.reads else None


def saved_as(node: Node, name: str) -> tuple[bool, Any]:
    """Looks up node._saved_<name>; returns (found, value).

    Operands and results have PyTorch's names, constants their own.
    """
    key, kw = _key_of(node, name), node._attrs or {}
    if key is not None:
        s = None if node._saved is None else node._saved.get(key)
        if s is None:
            return True, None  # not needed by the requested gradients
        if s.__class__ is SavedArray:
            return True, shallow_copy(s)
        if s.__class__ is ScalarOperand:
            return True, s._array.item()
        return True, _unpack(node, s, key)
    name = name if name in kw else _CONSTANTS.get(name, name)
    if name in kw:
        return True, kw[name]
    if name.endswith("_sym_sizes") and "shapes" in kw:
        i = _ROLES.get(name[:-10])
        if i is not None and i < len(kw["shapes"]):
            return True, kw["shapes"][i]
    return False, None


def _save(name, x, saved, output_nr=None):
    """Saves x as `name` in `saved`. output_nr: index of x among the results of the node that saves it."""
    if saved_hooks and x.__class__ is not ScalarOperand and x.__class__ is not SavedArray and hooks_here.pairs:
        pack, unpack = hooks_here.pairs[-1]
        edge = None if not x._requires_grad_ else output_nr if output_nr is not None else x if x._grad_fn_ is None else (x._grad_fn_, x._output_nr)
        early = hooks_here.early
        saved[name] = early.pop((name, id(x)), None) if early and output_nr is None else None
        if saved[name] is None:
            over = hooks_here.overwritten
            saved[name] = _packed(over[1](x) if over is not None and _version_of(x) is over[0] else x, pack, unpack, edge)
        return
    if x.__class__ is ScalarOperand or x.__class__ is SavedArray:
        saved[name] = x
        return
    if x._inference:
        raise RuntimeError("Inference tensors cannot be saved for backward: this one was created under torch.inference_mode(). "
                           "clone() it outside to get a normal tensor, or use torch.no_grad() there")
    ver = _version_of(x)
    saved[name] = (x, ver, ver.v)


def _version_of(x):
    """Returns the version counter of `x`; for a sparse tensor, the counter of its values."""
    x = getattr(x, "_sp_values", x)
    ver = x._version_counter
    if ver is None:
        ver = x._version_counter = VersionCounter()
    return ver


def _packed(x, pack, unpack, edge):
    """Returns pack(x); RuntimeError if the hook modifies `x` in place."""
    v = _version_of(x)
    was = v.v
    with grad_mode.no_grad():
        value = pack(x)
    if v.v != was:
        raise RuntimeError("A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook can not be modified by "
                           "in-place operations as this can lead to unexpected side-effects: write to a clone() of it.")
    return _Packed(value, unpack, edge)


def _unpack(node, s, name):
    c = s.__class__
    if c is tuple:
        x, ver, at = s
        if ver.v != at:
            raise _stale(x, node, ver.v, at)
        if x._detached_at > node._sequence_number:
            raise RuntimeError("Trying to use a saved tensor that has been detached in-place, i.e. with .detach_(): detach() it out of place instead")
        return x
    if c is _Out or c is _DualOut:
        if s.ver.v != s.at:
            raise _stale(s, node, s.ver.v, s.at)
        t = shallow_copy(s)
        t._version_counter = s.ver
        if c is _DualOut:
            t._fw_grad = s.tan
        if node._input_metadata[s.idx] is not None:  # integer outputs such as indices have no history
            t._grad_fn_, t._output_nr, t._requires_grad_ = node, s.idx, True
        return t
    if c is _Packed:
        return _attach_history(node, s.unpack(s.value), s.edge)
    return s


class _ToLeaf(Node):
    """Forwards the gradient of an unpacked tensor to the leaf that was packed."""

    __slots__ = ()

    def _apply(self, gs):
        return gs


_ToLeaf.__name__ = "AccumulateGrad"


def _attach_history(node, t, edge):
    """Attaches the history of the packed tensor to an unpack hook's result.

    Gradients of gradients continue from there.
    """
    if not is_tensor(t):
        raise TypeError(f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(t).__name__}")
    if edge is None:
        return t
    r = shallow_copy(t)
    r._version_counter = t._version_counter
    r._requires_grad_ = True
    if edge.__class__ is tuple:
        r._grad_fn_, r._output_nr = edge
    elif edge.__class__ is int:
        r._grad_fn_, r._output_nr = node, edge
    else:
        n = new_node(_ToLeaf)
        n._prim, n._next_edges, n._input_metadata = None, [edge], ((t._array.shape, t._array.dtype),)
        r._grad_fn_, r._output_nr = n, 0
    return r


def _stale(x, node, now, then):
    a = x._array
    kind = {"float32": "FloatTensor", "float64": "DoubleTensor", "float16": "HalfTensor", "int64": "LongTensor",
            "complex64": "ComplexFloatTensor"}.get(a.dtype.name, "Tensor")
    origin = ""
    if isinstance(x, _Out):
        origin = f", which is output {x.idx} of {node.name()},"
    elif x._grad_fn_ is not None:
        origin = f", which is output {x._output_nr} of {x._grad_fn_.name()},"
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[torch.{kind} {list(a.shape)}]{origin or ','} is at version {now}; expected version {then} instead. Hint: enable "
        "anomaly detection to find the operation that failed to compute its gradient, with "
        "torch.autograd.set_detect_anomaly(True).")
