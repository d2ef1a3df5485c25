"""Immutable lists and dicts for the arguments of Nodes."""
from mindtorch.torch.utils import _pytree

__all__ = ["immutable_list", "immutable_dict"]


def _refuse(name):
    def method(self, *args, **kwargs):
        raise TypeError(f"{type(self).__name__!r} object does not support mutation. If you are attempting to modify the kwargs or args of a "
                        "torch.fx.Node object,\ninstead create a new copy of it and assign the copy to the node:\n    new_args = ... # copy "
                        "and mutate args\n    node.args = new_args")
    method.__name__ = name
    return method


class immutable_list(list):
    """A list that cannot be modified."""

    def __hash__(self):
        return hash(tuple(self))

    def __reduce__(self):
        return immutable_list, (tuple(self),)


class immutable_dict(dict):
    """A dict that cannot be modified."""

    def __hash__(self):
        return hash(frozenset(self.items()))

    def __reduce__(self):
        return immutable_dict, (tuple(self.items()),)


for _name in ("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort", "__delitem__", "__iadd__", "__imul__", "__setitem__"):
    setattr(immutable_list, _name, _refuse(_name))
for _name in ("clear", "pop", "popitem", "setdefault", "update", "__delitem__", "__ior__", "__setitem__"):
    setattr(immutable_dict, _name, _refuse(_name))

_pytree.register_pytree_node(immutable_list, lambda x: (list(x), None), lambda v, _: immutable_list(v))
_pytree.register_pytree_node(immutable_dict, lambda x: (list(x.values()), list(x)), lambda v, keys: immutable_dict(zip(keys, v)))
