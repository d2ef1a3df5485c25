"""torch._tensor_str: how tensors are printed."""
from mindtorch.core.printing import PRINT_OPTS, contents_str, get_printoptions, printoptions, set_printoptions  # noqa: F401
from mindtorch.core.values import values


def _tensor_str(self, indent):
    """The values of a tensor as text, lines after the first indented."""
    return contents_str(values(self), indent)


def _str(self, *, tensor_contents=None):
    """The repr of a tensor."""
    if tensor_contents is not None:
        raise NotImplementedError("torch._tensor_str._str: tensor_contents is not supported")
    return repr(self)
