"""torch.fx.passes.operator_support: which steps of a program an accelerator can take."""
import abc

from mindtorch.core.tensor import taken
from mindtorch.torch.fx.node import Node
from mindtorch.torch.fx.passes.tools_common import CALLABLE_NODE_OPS, get_node_target

__all__ = ["OperatorSupportBase", "OperatorSupport", "create_op_support", "chain", "OpSupports", "any_chain"]


class OperatorSupportBase(abc.ABC):
    """Says of nodes whether they are supported."""

    @abc.abstractmethod
    def is_node_supported(self, submodules, node):
        """Whether a node is; submodules are those of its program, by name."""


class OperatorSupport(OperatorSupportBase):
    """Support by a dictionary: {what a step calls (`get_node_target`): None, or (dtypes of each argument, {name: dtypes})}."""

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
    """The dtype of a node's tensor, else the class of an argument."""
    if not isinstance(arg, Node):
        return type(arg)
    meta = arg.meta.get("tensor_meta")
    if meta is None and taken(arg.meta.get("val")):
        meta = arg.meta["val"]
    return arg.meta["type"] if meta is None else getattr(meta, "dtype", arg.meta.get("type"))


class _Function(OperatorSupportBase):
    def __init__(self, fn):
        self.fn = fn

    def is_node_supported(self, submodules, node):
        return self.fn(submodules, node)


def create_op_support(is_node_supported):
    """The OperatorSupportBase of a function (submodules, node) -> bool."""
    return _Function(is_node_supported)


def chain(*op_support):
    """Supported is what all support."""
    return _Function(lambda submodules, node: all(s.is_node_supported(submodules, node) for s in op_support))


def any_chain(*op_support):
    """Supported is what one supports."""
    return _Function(lambda submodules, node: any(s.is_node_supported(submodules, node) for s in op_support))


class OpSupports:
    """Kinds of support that are often wanted."""

    @classmethod
    def decline_if_input_dtype(cls, dtype):
        """Not what gets a tensor of this dtype."""
        return _Function(lambda submodules, node: all(_dtype(a) != dtype for a in node.all_input_nodes))

    @classmethod
    def decline_if_node_in_names(cls, disallow_set):
        """Not the nodes of these names."""
        return _Function(lambda submodules, node: node.name not in disallow_set)
