"""torch._tensor_str: printing of tensors."""
from mindtorch.core.tensor.printing import PRINT_OPTS, contents_str, get_printoptions, printoptions, set_printoptions  # noqa: F401
from mindtorch.core.tensor.sync import to_host


def _tensor_str(self, indent):
    """Returns the values of a tensor as text. Lines after the first are indented."""
    return contents_str(to_host(self), indent)


def _str(self, *, tensor_contents=None):
    """Returns the repr of a tensor."""
    if tensor_contents is not None:
        raise NotImplementedError("torch._tensor_str._str: tensor_contents is not supported")
    return repr(self)
