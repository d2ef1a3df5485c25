"""torch.fx.passes.operator_support: which nodes of a graph an accelerator supports."""
import abc

from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.fx.node import Node
from mindtorch.torch.fx.passes.tools_common import CALLABLE_NODE_OPS, get_node_target

__all__ = ["OperatorSupportBase", "OperatorSupport", "create_op_support", "chain", "OpSupports", "any_chain"]


class OperatorSupportBase(abc.ABC):
    """Base class of predicates that decide whether a node is supported."""

    @abc.abstractmethod
    def is_node_supported(self, submodules, node):
        """True if `node` is supported. `submodules` maps the names of the graph's submodules to
        modules."""


class OperatorSupport(OperatorSupportBase):
    """Support defined by a dictionary that maps a target (`get_node_target`) to its dtypes.

    A value is None (any dtypes), or a pair of the dtypes of each positional argument and {name:
    dtypes}.
    """

    _support_dict: dict = {}

    def __init__(self, support_dict=None):
        self._support_dict = support_dict or self._support_dict

    def is_node_supported(self, submodules, node):
        if node.op not in CALLABLE_NODE_OPS:
            return True
        target = get_node_target(submodules, node)
        if target not in self._support_dict:
            return False
        wanted = self._support_dict[target]
        if wanted is None:
            return True
        places, names = wanted
        return all(len(node.args) > i and _dtype(node.args[i]) in dtypes for i, dtypes in enumerate(places)) and all(
            k in node.kwargs and _dtype(node.kwargs[k]) in dtypes for k, dtypes in names.items())


def _dtype(arg):
    """Returns the dtype of a node's tensor, or the type of any other argument."""
    if not isinstance(arg, Node):
        return type(arg)
    meta = arg.meta.get("tensor_meta")
    if meta is None and is_tensor(arg.meta.get("val")):
        meta = arg.meta["val"]
    return arg.meta["type"] if meta is None else getattr(meta, "dtype", arg.meta.get("type"))


class _Function(OperatorSupportBase):
    def __init__(self, fn):
        self.fn = fn

    def is_node_supported(self, submodules, node):
        return self.fn(submodules, node)


def create_op_support(is_node_supported):
    """Returns an OperatorSupportBase for a function (submodules, node) -> bool."""
    return _Function(is_node_supported)


def chain(*op_support):
    """Supports the nodes that all of `op_support` support."""
    return _Function(lambda submodules, node: all(s.is_node_supported(submodules, node) for s in op_support))


def any_chain(*op_support):
    """Supports the nodes that any of `op_support` supports."""
    return _Function(lambda submodules, node: any(s.is_node_supported(submodules, node) for s in op_support))


class OpSupports:
    """Commonly used support predicates."""

    @classmethod
    def decline_if_input_dtype(cls, dtype):
        """Rejects nodes with an input tensor of this dtype."""
        return _Function(lambda submodules, node: all(_dtype(a) != dtype for a in node.all_input_nodes))

    @classmethod
    def decline_if_node_in_names(cls, disallow_set):
        """Rejects nodes with these names."""
        return _Function(lambda submodules, node: node.name not in disallow_set)
