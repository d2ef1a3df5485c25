"""Named tuples returned by ops with several results: `torch.return_types`."""
from operator import itemgetter
from typing import Any

from mindtorch.core.tensor.tensor import is_tensor

#: how torch.compile treats the functions of this module (torch/_dynamo/_capture.py)
CAPTURE = "safe"

#: PyTorch's name -> class; exported as `torch.return_types`
TYPES: dict[str, Any] = {}


class _Struct(tuple):
    """Tuple with named fields: unpacks like a tuple, prints like PyTorch's."""

    __slots__ = ()
    fields = ()

    def __new__(cls, *items):
        # PyTorch's constructor takes one sequence; ops here pass the fields separately.
        if len(items) == 1 and not is_tensor(items[0]):
            items = tuple(items[0])
        if len(items) != len(cls.fields):
            raise TypeError(f"torch.return_types.{cls.__name__}() takes a {len(cls.fields)}-sequence "
                            f"({len(items)}-sequence given)")
        return tuple.__new__(cls, items)

    def __repr__(self):
        body = ",\n".join(f"{n}={v!r}" for n, v in zip(self.fields, self))
        return f"torch.return_types.{type(self).__name__}(\n{body})"

    def __reduce__(self):
        return _rebuild, (type(self).__name__, tuple(self))


#: made(cls, items): builds one of the classes above from a tuple of the right length, without the
#: length check (saves 0.4 us)
made = tuple.__new__


def _rebuild(name, items):
    return TYPES[name](items)


def struct(name: str, fields: str) -> type[_Struct]:
    """Returns the return type `name` with these fields (one string), creating it on first use."""
    names = tuple(fields.split())
    if name in TYPES:
        if TYPES[name].fields != names:
            raise ValueError(f"return type {name} has the fields {TYPES[name].fields}, not {fields}")
        return TYPES[name]
    body: dict[str, Any] = {n: property(itemgetter(i), doc=f"Field {i} of the result.") for i, n in enumerate(names)}
    body.update(__slots__=(), __module__="torch.return_types", fields=names, __match_args__=names,
                n_fields=len(names), n_sequence_fields=len(names), n_unnamed_fields=0)
    cls = TYPES[name] = type(name, (_Struct,), body)
    return cls


for _name in ("max", "min", "median", "nanmedian", "mode", "kthvalue", "sort", "topk", "cummax", "cummin"):
    struct(_name, "values indices")
struct("aminmax", "min max")
struct("histogram", "hist bin_edges")
struct("histogramdd", "hist bin_edges")
struct("frexp", "mantissa exponent")
