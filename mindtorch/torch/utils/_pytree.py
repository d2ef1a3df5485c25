"""Nested containers of leaves (pytrees): flattening and unflattening.

Names and behavior are those of torch.utils._pytree. A node is an object whose type is registered;
everything else, including None, is a leaf.
"""
import collections
import dataclasses
import functools
import json
import typing

from mindtorch.core.tensor.return_types import TYPES as _RETURN_TYPES

__all__ = ["PyTree", "Context", "FlattenFunc", "UnflattenFunc", "TreeSpec", "PyTreeSpec", "LeafSpec", "NodeDef", "MappingKey", "SequenceKey", "GetAttrKey",
           "KeyEntry", "KeyPath", "SUPPORTED_NODES", "register_pytree_node", "register_dataclass", "register_constant",
           "tree_flatten", "tree_unflatten", "tree_leaves", "tree_structure", "tree_iter", "tree_map", "tree_map_", "map_only",
           "tree_map_only", "tree_map_only_", "tree_all", "tree_any", "tree_all_only", "tree_any_only", "tree_flatten_with_path",
           "tree_leaves_with_path", "tree_map_with_path", "tree_is_leaf", "arg_tree_leaves", "keystr", "key_get", "is_namedtuple",
           "is_namedtuple_instance", "is_namedtuple_class", "treespec_leaf", "treespec_tuple", "treespec_dict", "treespec_dumps",
           "treespec_loads", "treespec_pprint"]

PyTree = Context = typing.Any
FlattenFunc = UnflattenFunc = typing.Callable


# ------------------------------------------------------------------ paths to leaves
@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """Path entry of a tuple, a list or a deque."""

    idx: int

    def __str__(self):
        return f"[{self.idx!r}]"

    def get(self, sequence):
        return sequence[self.idx]


@dataclasses.dataclass(frozen=True)
class MappingKey:
    """Path entry of a dict."""

    key: object

    def __str__(self):
        return f"[{self.key!r}]"

    def get(self, mapping):
        return mapping[self.key]


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """Path entry of an object with named fields."""

    name: str

    def __str__(self):
        return f".{self.name}"

    def get(self, obj):
        return getattr(obj, self.name)


KeyEntry = typing.Any
KeyPath = tuple


def keystr(kp):
    """Formats a path as a Python expression: ['a'][0].x"""
    return "".join(str(k) for k in kp)


def key_get(obj, kp):
    """Returns the object at the end of a path."""
    for k in kp:
        obj = k.get(obj)
    return obj


# ------------------------------------------------------------------ node types
class NodeDef(typing.NamedTuple):
    """Flatten and unflatten functions of a registered type."""

    type: type
    flatten_fn: typing.Callable
    unflatten_fn: typing.Callable
    flatten_with_keys_fn: typing.Callable = None
    serialized_type_name: str = None
    to_dumpable_context: typing.Callable = None
    from_dumpable_context: typing.Callable = None


#: type -> NodeDef
SUPPORTED_NODES = {}
CONSTANT_NODES = set()


def register_pytree_node(cls, flatten_fn, unflatten_fn, *, serialized_type_name=None, to_dumpable_context=None,
                         from_dumpable_context=None, flatten_with_keys_fn=None):
    """Registers a type as a node: flatten_fn(obj) -> (children, context), unflatten_fn(children,
    context) -> obj."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    if (to_dumpable_context is None) != (from_dumpable_context is None):
        raise ValueError(f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or registered.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn, serialized_type_name, to_dumpable_context,
                                   from_dumpable_context)


def _register_pytree_node(cls, flatten_fn, unflatten_fn, to_str_fn=None, maybe_from_str_fn=None, *, serialized_type_name=None,
                          to_dumpable_context=None, from_dumpable_context=None, flatten_with_keys_fn=None):
    """Former name of `register_pytree_node`."""
    register_pytree_node(cls, flatten_fn, unflatten_fn, serialized_type_name=serialized_type_name,
                         to_dumpable_context=to_dumpable_context, from_dumpable_context=from_dumpable_context,
                         flatten_with_keys_fn=flatten_with_keys_fn)


def _deregister_pytree_node(cls):
    del SUPPORTED_NODES[cls]


def register_constant(cls):
    """Registers a type as a node without children; its instances are part of the structure."""
    if cls.__eq__ is object.__eq__ or cls.__hash__ is None:
        raise TypeError(f"register_constant: {cls} must define __eq__ and __hash__")
    register_pytree_node(cls, lambda x: ([], x), lambda children, x: x, flatten_with_keys_fn=lambda x: ([], x))
    CONSTANT_NODES.add(cls)


def register_dataclass(cls, *, field_names=None, drop_field_names=None, serialized_type_name=None):
    """Registers a dataclass as a node whose children are its fields."""
    if field_names is None:
        if not dataclasses.is_dataclass(cls):
            raise ValueError("field_names must be specified with a list of all fields used to initialize the class, as it is not a "
                             "dataclass")
        field_names = [f.name for f in dataclasses.fields(cls) if f.init and f.name not in (drop_field_names or ())]
    names = list(field_names)

    def flatten(obj):
        there = [n for n in names if getattr(obj, n) is not None]
        return [getattr(obj, n) for n in there], [there, [n for n in names if n not in there]]

    def with_keys(obj):
        children, context = flatten(obj)
        return [(GetAttrKey(n), c) for n, c in zip(context[0], children)], context

    def unflatten(children, context):
        return cls(**dict(zip(context[0], children)), **dict.fromkeys(context[1]))

    register_pytree_node(cls, flatten, unflatten, flatten_with_keys_fn=with_keys, serialized_type_name=serialized_type_name)


def _sequence_keys(obj):
    return [(SequenceKey(i), x) for i, x in enumerate(obj)]


def _mapping_keys(d):
    return [(MappingKey(k), v) for k, v in d.items()]


def is_namedtuple_class(cls):
    """True for a class created by collections.namedtuple or typing.NamedTuple."""
    return isinstance(cls, type) and issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple) and \
        hasattr(cls, "_make") and all(isinstance(f, str) for f in cls._fields)


def is_namedtuple(obj):
    """True for a named tuple or its class."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_namedtuple_instance(obj):
    """True for a named tuple."""
    return is_namedtuple_class(type(obj))


register_pytree_node(tuple, lambda t: (list(t), None), lambda c, _: tuple(c), serialized_type_name="builtins.tuple",
                     flatten_with_keys_fn=lambda t: (_sequence_keys(t), None))
register_pytree_node(list, lambda t: (list(t), None), lambda c, _: list(c), serialized_type_name="builtins.list",
                     flatten_with_keys_fn=lambda t: (_sequence_keys(t), None))
register_pytree_node(dict, lambda d: (list(d.values()), list(d)), lambda c, keys: dict(zip(keys, c)),
                     serialized_type_name="builtins.dict", flatten_with_keys_fn=lambda d: (_mapping_keys(d), list(d)))
register_pytree_node(collections.namedtuple, lambda t: (list(t), type(t)), lambda c, cls: cls(*c),
                     serialized_type_name="collections.namedtuple",
                     flatten_with_keys_fn=lambda t: ([(GetAttrKey(n), x) for n, x in zip(t._fields, t)], type(t)))
register_pytree_node(collections.OrderedDict, lambda d: (list(d.values()), list(d)),
                     lambda c, keys: collections.OrderedDict(zip(keys, c)), serialized_type_name="collections.OrderedDict",
                     flatten_with_keys_fn=lambda d: (_mapping_keys(d), list(d)))
register_pytree_node(collections.defaultdict, lambda d: (list(d.values()), [d.default_factory, list(d)]),
                     lambda c, context: collections.defaultdict(context[0], zip(context[1], c)),
                     serialized_type_name="collections.defaultdict",
                     flatten_with_keys_fn=lambda d: (_mapping_keys(d), [d.default_factory, list(d)]))
register_pytree_node(collections.deque, lambda d: (list(d), d.maxlen), lambda c, n: collections.deque(c, maxlen=n),
                     serialized_type_name="collections.deque", flatten_with_keys_fn=lambda d: (_sequence_keys(d), d.maxlen))
BUILTIN_TYPES = frozenset(SUPPORTED_NODES)
STANDARD_DICT_TYPES = frozenset({dict, collections.OrderedDict, collections.defaultdict})


def _register_return_type(cls):
    register_pytree_node(cls, lambda t: (list(t), None), lambda c, _: cls(list(c)),
                         serialized_type_name=f"torch.return_types.{cls.__name__}",
                         flatten_with_keys_fn=lambda t: (_sequence_keys(t), None))


def _node_type(x):
    """Returns the registered type of a node; None for a leaf."""
    cls = type(x)
    if cls in SUPPORTED_NODES:
        return cls
    if isinstance(x, tuple):
        if cls.__name__ in _RETURN_TYPES and _RETURN_TYPES[cls.__name__] is cls:
            _register_return_type(cls)  # result types are created as op families declare them
            return cls
        if is_namedtuple_class(cls):
            return collections.namedtuple
    return None


# ------------------------------------------------------------------ structure
class TreeSpec:
    """Structure of a tree: its nodes without the leaves."""

    __slots__ = ("type", "_context", "_children", "num_leaves", "num_nodes", "num_children")

    def __init__(self, type, context, children_specs):
        self.type, self._context, self._children = type, context, list(children_specs)
        self.num_children = len(self._children)
        self.num_leaves = 1 if type is None else sum(c.num_leaves for c in self._children)
        self.num_nodes = 1 + sum(c.num_nodes for c in self._children)

    @property
    def context(self):
        return self._context

    @property
    def children_specs(self):
        return self._children

    def children(self):
        return self._children.copy()

    def child(self, index):
        return self._children[index]

    def is_leaf(self):
        return self.type is None

    def __repr__(self, indent=0):
        if self.type is None:
            return "*"
        inner = ""
        if self._children:
            pad = " " * (indent + 2)
            inner = self._children[0].__repr__(indent + 2)
            inner += "".join(",\n" + pad + c.__repr__(indent + 2) for c in self._children[1:])
        return f"TreeSpec({self.type.__name__}, {self._context}, [{inner}])"

    def __eq__(self, other):
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return self.type is other.type and self._context == other._context and self._children == other._children

    def __hash__(self):
        context = self._context
        if self.type in STANDARD_DICT_TYPES:
            context = str(context)
        try:
            return hash((self.type, context, tuple(self._children)))
        except TypeError:
            return hash((self.type, tuple(self._children)))

    def unflatten(self, leaves):
        """Returns the tree of this structure with the given leaves."""
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec refers to a pytree that "
                             f"holds {self.num_leaves} items ({self}).")
        return self._build(iter(leaves))

    def _build(self, leaves):
        if self.type is None:
            return next(leaves)
        return SUPPORTED_NODES[self.type].unflatten_fn([c._build(leaves) for c in self._children], self._context)

    def flatten_up_to(self, tree):
        """Returns the subtrees of `tree` at the positions of this structure's leaves.

        Raises ValueError if the structures differ above the leaves.
        """
        found = []
        self._up_to(tree, found)
        return found

    def _up_to(self, tree, found):
        if self.type is None:
            found.append(tree)
            return
        kind = _node_type(tree)
        same_dicts = self.type in STANDARD_DICT_TYPES and kind in STANDARD_DICT_TYPES
        if kind is not self.type and not same_dicts:
            wanted = self._context if self.type is collections.namedtuple else self.type
            raise ValueError(f"Node type mismatch; expected {wanted!r}, but got {type(tree)!r}.")
        if same_dicts:
            keys = self._context[1] if self.type is collections.defaultdict else self._context
            missing, extra = [k for k in keys if k not in tree], [k for k in tree if k not in keys]
            if missing or extra:
                message = "Node keys mismatch"
                if missing:
                    message += f"; missing key(s): {set(missing)}"
                if extra:
                    message += f"; extra key(s): {set(extra)}"
                raise ValueError(message + ".")
            children = [tree[k] for k in keys]
        else:
            children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
            if len(children) != self.num_children:
                raise ValueError(f"Node arity mismatch; expected {self.num_children}, but got {len(children)}.")
            if self.type is not collections.deque and context != self._context:
                raise ValueError(f"Node context mismatch for custom node type {self.type!r}.")
        for spec, child in zip(self._children, children):
            spec._up_to(child, found)


PyTreeSpec = TreeSpec


class LeafSpec(TreeSpec):
    """Structure of a single leaf."""

    __slots__ = ()

    def __init__(self):
        super().__init__(None, None, [])

    __hash__ = TreeSpec.__hash__


_LEAF = TreeSpec(None, None, [])


def treespec_leaf():
    """Returns the structure of a leaf."""
    return _LEAF


def treespec_tuple(iterable=(), /):
    """Returns the structure of a tuple of the given structures."""
    return TreeSpec(tuple, None, list(iterable))


def treespec_dict(mapping=(), /, **kwargs):
    """Returns the structure of a dict of the given structures."""
    d = dict(mapping, **kwargs)
    return TreeSpec(dict, list(d), list(d.values()))


def _need_spec(treespec):
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"Expected `treespec` to be an instance of PyTreeSpec but got item of type {type(treespec)}.")


# ------------------------------------------------------------------ flatten and unflatten
def _flatten(tree, leaves, is_leaf):
    kind = None if is_leaf is not None and is_leaf(tree) else _node_type(tree)
    if kind is None:
        leaves.append(tree)
        return _LEAF
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_flatten(c, leaves, is_leaf) for c in children])


def tree_flatten(tree, is_leaf=None):
    """Returns (list of leaves, structure)."""
    leaves = []
    spec = _flatten(tree, leaves, is_leaf)
    return leaves, spec


def tree_unflatten(leaves, treespec):
    """Returns the tree of the given structure with the given leaves."""
    _need_spec(treespec)
    return treespec.unflatten(leaves)


def tree_iter(tree, is_leaf=None):
    """Iterates over the leaves."""
    kind = None if is_leaf is not None and is_leaf(tree) else _node_type(tree)
    if kind is None:
        yield tree
        return
    for c in SUPPORTED_NODES[kind].flatten_fn(tree)[0]:
        yield from tree_iter(c, is_leaf)


def tree_leaves(tree, is_leaf=None):
    """Returns the list of leaves."""
    return list(tree_iter(tree, is_leaf))


def tree_structure(tree, is_leaf=None):
    """Returns the structure of a tree."""
    return tree_flatten(tree, is_leaf)[1]


def tree_is_leaf(tree, is_leaf=None):
    """True for everything except a node."""
    return is_leaf is not None and is_leaf(tree) or _node_type(tree) is None


def arg_tree_leaves(*args, **kwargs):
    """Returns the leaves of all arguments."""
    return [x for a in (*args, *kwargs.values()) for x in tree_iter(a)]


# ------------------------------------------------------------------ maps
def tree_map(func, tree, *rests, is_leaf=None):
    """Returns the tree of func(leaf, corresponding subtrees of the other trees)."""
    leaves, spec = tree_flatten(tree, is_leaf)
    return spec.unflatten(map(func, leaves, *[spec.flatten_up_to(r) for r in rests]))


def tree_map_(func, tree, *rests, is_leaf=None):
    """Calls `func` like `tree_map`, but for its side effects; returns the original tree."""
    leaves, spec = tree_flatten(tree, is_leaf)
    for args in zip(leaves, *[spec.flatten_up_to(r) for r in rests]):
        func(*args)
    return tree


def _predicate(kinds):
    if isinstance(kinds, (type, tuple)) or type(kinds).__name__ == "UnionType":
        return lambda x: isinstance(x, kinds)
    if callable(kinds):
        return kinds
    raise TypeError("Argument must be a type, a tuple of types, or a callable.")


def map_only(type_or_types_or_pred, /):
    """Decorator that applies the function to leaves of these types and returns other leaves
    unchanged."""
    chosen = _predicate(type_or_types_or_pred)

    def deco(func):
        @functools.wraps(func)
        def inner(x):
            return func(x) if chosen(x) else x
        return inner
    return deco


def tree_map_only(type_or_types_or_pred, /, func, tree, is_leaf=None):
    """Like `tree_map`, but only for leaves of these types."""
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(type_or_types_or_pred, /, func, tree, is_leaf=None):
    """Like `tree_map_`, but only for leaves of these types."""
    return tree_map_(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred, tree, is_leaf=None):
    """True if `pred` holds for all leaves."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred, tree, is_leaf=None):
    """True if `pred` holds for at least one leaf."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(type_or_types, /, pred, tree, is_leaf=None):
    """True if `pred` holds for all leaves of these types."""
    return all(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, type_or_types))


def tree_any_only(type_or_types, /, pred, tree, is_leaf=None):
    """True if `pred` holds for at least one leaf of these types."""
    return any(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, type_or_types))


def _broadcast_to_and_flatten(tree, treespec, is_leaf=None):
    """Repeats each leaf of `tree` over the corresponding subtree of `treespec`; returns None if the
    two do not match."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if treespec.is_leaf() or _node_type(tree) is not treespec.type:
        return None
    children, context = SUPPORTED_NODES[treespec.type].flatten_fn(tree)
    if len(children) != treespec.num_children or context != treespec.context:
        return None
    out = []
    for child, spec in zip(children, treespec.children_specs):
        part = _broadcast_to_and_flatten(child, spec, is_leaf)
        if part is None:
            return None
        out += part
    return out


# ------------------------------------------------------------------ traversal with paths
def _with_path(tree, path, is_leaf):
    kind = None if is_leaf is not None and is_leaf(tree) else _node_type(tree)
    if kind is None:
        yield path, tree
        return
    with_keys = SUPPORTED_NODES[kind].flatten_with_keys_fn
    if with_keys is None:
        raise ValueError(f"Did not find a flatten_with_keys_fn for type: {kind}. Please pass a flatten_with_keys_fn argument to "
                         "register_pytree_node.")
    for key, child in with_keys(tree)[0]:
        yield from _with_path(child, (*path, key), is_leaf)


def tree_leaves_with_path(tree, is_leaf=None):
    """Returns a list of (path, leaf)."""
    return list(_with_path(tree, (), is_leaf))


def tree_flatten_with_path(tree, is_leaf=None):
    """Returns (list of (path, leaf), structure)."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(func, tree, *rests, is_leaf=None):
    """Like `tree_map`, but `func` receives the path as its first argument."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    paths, leaves = [p for p, _ in pairs], [x for _, x in pairs]
    return spec.unflatten(map(func, paths, leaves, *[spec.flatten_up_to(r) for r in rests]))


# ------------------------------------------------------------------ serialization of structures
def _to_json(spec):
    if spec.type is None:
        return {"type": None, "context": None, "children_spec": []}
    node = SUPPORTED_NODES[spec.type]
    if node.serialized_type_name is None:
        raise NotImplementedError(f"No registered serialization name for {spec.type} found. Please update your "
                                  "_register_pytree_node call with a `serialized_type_name` kwarg.")
    if spec.type in (collections.namedtuple, collections.defaultdict):
        raise NotImplementedError(f"treespec_dumps of {spec.type.__name__} is not supported: its context contains a class")
    context = node.to_dumpable_context(spec.context) if node.to_dumpable_context else spec.context
    return {"type": node.serialized_type_name, "context": json.dumps(context), "children_spec": [_to_json(c) for c in spec.children_specs]}


def treespec_dumps(treespec, protocol=None):
    """Serializes a structure to JSON."""
    _need_spec(treespec)
    if protocol not in (None, 1):
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [1]")
    return json.dumps([1, _to_json(treespec)])


def treespec_loads(serialized):
    """Parses a structure written by `treespec_dumps`."""
    protocol, root = json.loads(serialized)
    if protocol != 1:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [1]")
    names = {n.serialized_type_name: n for n in SUPPORTED_NODES.values() if n.serialized_type_name is not None}

    def build(d):
        if d["type"] is None:
            return _LEAF
        if d["type"] not in names:
            raise NotImplementedError(f"Deserializing `{d['type']}` in pytree is not registered.")
        node = names[d["type"]]
        context = json.loads(d["context"])
        if node.from_dumpable_context:
            context = node.from_dumpable_context(context)
        return TreeSpec(node.type, context, [build(c) for c in d["children_spec"]])

    return build(root)


class _Asterisk(str):
    def __repr__(self):
        return "*"


def treespec_pprint(treespec):
    """Formats a structure as a tree with * for the leaves."""
    return repr(tree_unflatten([_Asterisk()] * treespec.num_leaves, treespec))


# ------------------------------------------------------------------ private names libraries use
def _get_node_type(tree):
    """Returns the registered type of a node, or the type of a leaf."""
    return _node_type(tree) or type(tree)


# Flatten and unflatten functions of lists and dicts under PyTorch's private names: libraries
# register their own types with them.
_list_flatten, _list_unflatten = SUPPORTED_NODES[list].flatten_fn, SUPPORTED_NODES[list].unflatten_fn
_list_flatten_with_keys = SUPPORTED_NODES[list].flatten_with_keys_fn
_dict_flatten, _dict_unflatten = SUPPORTED_NODES[dict].flatten_fn, SUPPORTED_NODES[dict].unflatten_fn
_dict_flatten_with_keys = SUPPORTED_NODES[dict].flatten_with_keys_fn


def is_structseq_instance(obj):
    """True for results with named fields that are not namedtuples (such as the result of
    torch.max)."""
    return isinstance(obj, tuple) and hasattr(obj, "n_sequence_fields") and hasattr(obj, "n_unnamed_fields")
