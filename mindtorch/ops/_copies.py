"""view_copy, permute_copy, ...: the view ops as copies, under torch's names."""
from mindtorch.core.table import TABLE, op
from mindtorch.core.tensor import Tensor
from mindtorch.ops.shape import clone_

# name: method of the view op, or None where it is a function of the table.
_VIEWS = ("alias", "as_strided", "diagonal", "expand", "permute", "select", "split", "split_with_sizes", "squeeze", "t", "transpose",
          "unbind", "unfold", "unsqueeze", "view", "view_as_real", "view_as_complex", "narrow", "detach")


def _declare(name):
    row = TABLE.get(name)
    view = getattr(Tensor, name) if row is None or row.public is None or name in ("expand", "permute", "view", "unfold") else row.fn

    def fn(input, *args):
        r = view(input, *args)
        if isinstance(r, tuple):
            return tuple([clone_(x, fmt="contiguous") for x in r])
        return clone_(r, fmt="contiguous")

    fn.__doc__ = f"{name} as a copy."
    op(fn, name=name + "_copy", method=name == "narrow")


for _name in _VIEWS:
    if _name in TABLE or hasattr(Tensor, _name):
        _declare(_name)
