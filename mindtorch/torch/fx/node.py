"""torch.fx.node: one operation of a Graph (https://pytorch.org/docs/stable/fx.html#torch.fx.Node).
"""
import builtins
import math
import operator
import re
import types
from typing import Any, Callable, Union

from mindtorch.core.dispatch.op_schema import tagged
from mindtorch.torch._globals import torch_name
from mindtorch.torch.fx.immutable_collections import immutable_dict, immutable_list

__all__ = ["Node", "map_arg", "map_aggregate", "has_side_effect"]

Target = Union[Callable[..., Any], str]
Argument = Any
BaseArgumentTypes = Any
_KINDS = ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root")
_impure = set()


def has_side_effect(fn):
    """Marks a function as having side effects, so that dead code elimination keeps its calls.
    Returns the function."""
    _impure.add(fn)
    return fn


def qualified_name(fn):
    """Returns the dotted name of a function or class. PyTorch functions get their PyTorch names."""
    if hasattr(fn, "_overloadpacket"):
        return f"torch.ops.{fn}"
    if hasattr(fn, "_qualified_op_name"):
        return f"torch.ops.{fn._qualified_op_name.replace('::', '.')}"
    name = getattr(fn, "__name__", None) or getattr(fn, "_name", None) or type(fn).__name__
    if getattr(builtins, name, None) is fn:
        return name
    known = torch_name(fn)
    if known is not None:
        return ".".join(known)
    qualname = getattr(fn, "__qualname__", name)
    module = getattr(fn, "__module__", None)
    if module is None and isinstance(fn, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        module = fn.__objclass__.__module__
    return f"{module}.{qualname if '<locals>' not in qualname else name}"


def type_text(t):
    """Returns a type as text for printed graphs."""
    if isinstance(t, type) and not hasattr(t, "__origin__"):
        return qualified_name(t) if t.__module__ != "builtins" else t.__qualname__
    if t is ...:
        return "..."
    return re.sub(r"\bmindtorch\.(core\.tensor|torch)\.", lambda m: "torch.", repr(t))


_type_repr = type_text


_get_qualified_name = qualified_name


def _printed(target):
    """Returns a target as text for printed graphs and tables."""
    if isinstance(target, str):
        return target
    name = qualified_name(target)
    if name.startswith("_operator."):
        return name[1:]
    return f"builtins.{name}" if getattr(builtins, name, None) is target else name


def map_aggregate(a, fn):
    """Applies fn to the leaves of the structure `a` (tuples, lists, dicts, slices). Returns the new
    structure."""
    c = a.__class__
    if isinstance(a, tuple):
        items = [map_aggregate(x, fn) for x in a]
        return tuple(items) if not hasattr(a, "_fields") else c(*items)
    if isinstance(a, list):
        return immutable_list([map_aggregate(x, fn) for x in a])
    if isinstance(a, dict):
        return immutable_dict([(k, map_aggregate(v, fn)) for k, v in a.items()])
    if c is slice:
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


def map_arg(a, fn):
    """Applies fn to each Node in the structure `a`. Returns the new structure."""
    if not callable(fn):
        raise AssertionError("torch.fx.map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


class Node:
    """An operation of a Graph: its kind `op`, its `target` (callable or name), its `args` and
    `kwargs`, and the `users` of its value."""

    def __init__(self, graph, name, op, target, args, kwargs, return_type=None):
        if op not in _KINDS:
            raise AssertionError(f"Node [graph = {graph}, name = '{name}'] has the unknown op {op!r}")
        if op == "call_function" and not callable(target):
            raise ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} but a Callable is expected")
        if op not in ("call_function", "root") and not isinstance(target, str):
            raise ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} but a str is expected")
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self._input_nodes, self.users, self.meta = {}, {}, {}
        self._prev = self._next = self
        self._erased = False
        self._repr_fn = None
        self._args, self._kwargs = (), {}
        self._set(args, kwargs)

    # ---- list order
    @property
    def next(self):
        """The node after this one in the graph's list."""
        return self._next

    @property
    def prev(self):
        """The node before this one."""
        return self._prev

    def prepend(self, x):
        """Moves node x (of the same graph) directly before this one."""
        if x.graph is not self.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if x is self:
            return
        x._unlink()
        p = self._prev
        p._next, x._prev, x._next, self._prev = x, p, self, x

    def append(self, x):
        """Moves node x directly after this one."""
        self._next.prepend(x)

    def _unlink(self):
        p, n = self._prev, self._next
        p._next, n._prev = n, p
        self._prev = self._next = self

    _remove_from_list = _unlink

    # ---- arguments
    @property
    def args(self):
        """Positional arguments."""
        return self._args

    @args.setter
    def args(self, a):
        self._set(a, self._kwargs)

    @property
    def kwargs(self):
        """Keyword arguments."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k):
        self._set(self._args, k)

    def _set(self, args, kwargs):
        for n in self._input_nodes:
            n.users.pop(self, None)
        self._input_nodes = {}

        def use(n):
            if isinstance(n, Node):
                self._input_nodes.setdefault(n)
                n.users.setdefault(self)
            return n
        self._args = map_aggregate(tuple(args), use)
        self._kwargs = map_aggregate(dict(kwargs), use)

    @property
    def all_input_nodes(self):
        """Nodes among the arguments, each once."""
        return list(self._input_nodes)

    def update_arg(self, idx, arg):
        """Replaces a positional argument."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx, arg):
        """Inserts a positional argument at index `idx`."""
        if not 0 <= idx <= len(self._args):
            raise AssertionError("insert_args index must be between 0 and len(self.args)")
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key, arg):
        """Sets a keyword argument."""
        self.kwargs = {**self._kwargs, key: arg}

    def replace_input_with(self, old_input, new_input):
        """Replaces `old_input` by another node in all arguments."""
        def swap(n):
            return new_input if n is old_input else n
        self._set(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    _replace_input_with = replace_input_with

    def replace_all_uses_with(self, replace_with, delete_user_cb=lambda user: True, *, propagate_meta=False):
        """Makes all users of this node (for which `delete_user_cb` is true) use another node.
        Returns the list of these users."""
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError("Called node.replace_all_uses_with(replace_with, propagate_meta=True), but replace_with already has "
                                     ".meta keys")
            replace_with.meta.update(self.meta)
        changed = [u for u in self.users if delete_user_cb is None or delete_user_cb(u)]
        for user in changed:
            for hook in _hooks(self.graph, "replace"):
                hook(old=self, new=replace_with.name, user=user)
            user.replace_input_with(self, replace_with)
        return changed

    # ---- properties
    @property
    def stack_trace(self):
        """Stack trace of the recording, if the tracer saved it."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace):
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random=True):
        """True if the operation has side effects."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            return _has_effect(self.target, impure_random)
        if self.op == "call_method":
            return self.target.endswith("_") and not self.target.endswith("__") or self.target in ("__setitem__", "__iadd__")
        if self.op == "call_module":
            if self.graph.owning_module is None:
                raise AssertionError("self.graph.owning_module not set for purity check")
            found = self.graph.owning_module.get_submodule(self.target)
            return getattr(found, "_is_impure", False)
        return False

    def normalized_arguments(self, root, arg_types=None, kwarg_types=None, normalize_to_only_use_kwargs=False):
        """Returns (args, kwargs) with defaults filled in and keyword names for arguments not passed
        by position. None if the target has no known PyTorch signature."""
        from mindtorch.torch.fx.operator_schemas import normalize_function, normalize_module
        if self.op == "call_function":
            return normalize_function(self.target, self._args, self._kwargs, arg_types, kwarg_types, normalize_to_only_use_kwargs)
        if self.op == "call_module":
            return normalize_module(root, self.target, self._args, self._kwargs, normalize_to_only_use_kwargs)
        return None

    def format_node(self, placeholder_names=None, maybe_return_typename=None, *, include_tensor_metadata=False):
        """Returns the node as text, in the format of a printed Graph."""
        kind = self.op
        note = f" : {type_text(self.type)} [num_users={len(self.users)}]" if self.type is not None else f" : [num_users={len(self.users)}]"
        if kind == "placeholder":
            if placeholder_names is not None:
                placeholder_names.append(self.target if self.type is None else f"{self.target} : {type_text(self.type)}")
            default = f"(default={self.args[0]})" if self.args else ""
            return f"%{self.name}{note} = placeholder[target={self.target}]{default}"
        if kind == "get_attr":
            return f"%{self.name}{note} = get_attr[target={_printed(self.target)}]"
        if kind == "output":
            if self.type is not None and maybe_return_typename:
                maybe_return_typename[0] = f" -> {type_text(self.type)}"
            return f"return {self.args[0]}"
        return f"%{self.name}{note} = {kind}[target={_printed(self.target)}](args = {_format_arg(self.args)}, kwargs = {_format_arg(self.kwargs)})"

    def __repr__(self):
        return self._repr_fn(self) if self._repr_fn is not None else self.name

    def __lt__(self, other):
        order = {n: i for i, n in enumerate(self.graph.nodes)}
        return order[self] < order[other]

    def __gt__(self, other):
        return other < self

    def __deepcopy__(self, memo):
        raise RuntimeError("a Node cannot be deep-copied: use Graph.node_copy")


_RANDOM = frozenset("""rand randn randint randperm rand_like randn_like randint_like normal poisson bernoulli multinomial""".split())
_RANDOM_ATEN = frozenset([n.removeprefix("nn.functional.") for n in tagged("nondeterministic_seeded")])


def _has_effect(fn, impure_random=True):
    """True if a call of a function has side effects: it modifies arguments, asserts, or advances
    the random generator."""
    if fn in _impure or fn is operator.setitem or getattr(fn, "_namespace", None) == "profiler":
        return True
    name = getattr(fn, "_opname", None)
    if name is not None:
        return (name[-1:] == "_" and name[-2:] != "__" or fn._overloadname.endswith("out") or impure_random and name in _RANDOM_ATEN
                or name in ("_assert_async", "_assert_tensor_metadata") or fn.namespace == "profiler" or bool(getattr(fn._schema, "is_mutable", False)))
    name = getattr(fn, "__name__", "")
    if name in _RANDOM or name in ("_assert", "_assert_async", "manual_seed") or name[-1:] == "_" and name[:1] != "_":
        known = torch_name(fn)
        return known is not None and (name not in _RANDOM or known[0] == "torch" and "." not in known[1])
    return False


def _hooks(graph, kind):
    module = graph.owning_module
    return getattr(module, f"_{kind}_hooks", None) or ()


def _format_arg(arg, max_list_len=math.inf):
    """Formats arguments with nodes as %name and strings without quotes, as in a printed graph."""
    if hasattr(arg, "_custom_fx_repr_fn"):
        return arg._custom_fx_repr_fn()
    if isinstance(arg, Node):
        return f"%{arg.name}"
    if isinstance(arg, (tuple, list)):
        items = [_format_arg(a) for a in arg[:int(min(len(arg), max_list_len))]]
        inner = ", ".join(items) + ("" if len(items) == len(arg) else f", ...[total_len={len(arg)}]")
        if isinstance(arg, list):
            return f"[{inner}]"
        return f"({inner}{',' if len(arg) == 1 else ''})"
    if isinstance(arg, dict):
        return f"{{{', '.join(f'{k}: {_format_arg(v)}' for k, v in arg.items())}}}"
    return str(arg)
