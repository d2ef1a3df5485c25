"""Entries of the op table (filled by core/dispatch/op_registry.py), and the annotations of ops' number parameters."""
from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

#: qualified name ("add", "nn.functional.relu", "linalg.inv") -> OpSchema
OPS: dict[str, OpSchema] = {}

#: Tag of an op or a primitive -> its meaning. The names are those of torch.Tag where it has one;
#: `linear_pointwise` and `metadata_only` are mindtorch's.
TAGS = {
    "pointwise": "each element of the result depends on the same element of the broadcast operands only",
    "linear_pointwise": "pointwise, and linear: partial sums of operands give partial sums of the result",
    "reduction": "reduces dimensions of its operand",
    "view": "the result shares memory with its first operand",
    "inplace_view": "changes the metadata of its operand in place, not its values",
    "metadata_only": "depends on the operands' metadata only, never on their values",
    "data_dependent_output": "passes values of tensors to or from Python",
    "dynamic_output_shape": "the shape of the result depends on the operands' values",
    "nondeterministic_seeded": "draws random numbers from a generator",
    "core": "belongs to the core set of ops: others are decomposed into these",
}
_IMPLIED = {"linear_pointwise": "pointwise"}

#: Condition under which a call has an op's tag "data_dependent_output" or "dynamic_output_shape" ->
#: its meaning.
CONDITIONS = {
    "of tensors": "if an argument after the first is a tensor",
    "if alone": "if there are no further arguments",
    "unless told": "if no further argument is a number",
}


def parse_tags(tags: str) -> frozenset[str]:
    """Returns the tags in a space-separated string, with those that they imply.

    Raises ValueError for a name that `TAGS` does not contain.
    """
    found = set(tags.split())
    unknown = sorted(found - TAGS.keys())
    if unknown:
        raise ValueError(f"unknown tag {unknown[0]!r}; the tags are {', '.join(TAGS)}")
    return frozenset(found | {_IMPLIED[t] for t in found if t in _IMPLIED})


def tagged(tag: str) -> frozenset[str]:
    """Returns the qualified names of the ops with a tag, aliases included.

    `core/dispatch/primitives.py` has the same function for primitives.
    """
    parse_tags(tag)
    return frozenset([name for name, o in OPS.items() if tag in o.tags])


class OpSchema:
    """Entry of the op table: everything that is declared about an op."""

    __slots__ = ("name", "ns", "body", "fn", "public", "method", "inplace", "out", "aliases", "autocast", "overlap", "tags", "condition",
                 "aten", "writes", "expanded", "main")
    name: str
    ns: str
    body: Callable[..., Any]  # the declared function
    fn: Callable[..., Any]  # the function that ops call
    public: Callable[..., Any] | None        # torch.<qualname>
    method: bool
    inplace: bool | str
    out: Any                                 # False, True, "dtype_from_out" or core/dispatch/op_registry.py's `Same`
    aliases: tuple[str, ...]
    autocast: str | Callable[..., str | None] | None
    overlap: str | None
    tags: frozenset[str]                     # names of TAGS
    condition: str | None                    # of CONDITIONS
    #: aten's name, if it is not the op's own; with an overload ("addr.default") if the op is that
    #: single operator; (that, parameters in the order of aten's schema) if the order is not the op's
    aten: str | tuple[str, ...] | None
    writes: tuple[str, object] | None
    expanded: Callable[..., object] | None
    main: OpSchema  # the op of which this is an alias, or itself

    def __repr__(self) -> str:
        return f"<op {self.qualname}>"

    @property
    def qualname(self) -> str:
        return f"{self.ns}.{self.name}" if self.ns else self.name

    @property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.body)

    @property
    def aten_name(self) -> str:
        """Name of the op in torch.ops.aten."""
        if self.aten is not None:
            return (self.aten if isinstance(self.aten, str) else self.aten[0]).partition(".")[0]
        return f"{self.ns}_{self.name}" if self.ns in ("linalg", "special", "fft") else self.name

    @property
    def aten_overload(self) -> str | None:
        """Overload of the single aten operator that the op is; None if it is not declared as one."""
        declared = self.aten if self.aten is None or isinstance(self.aten, str) else self.aten[0]
        return declared.partition(".")[2] or None if declared else None

    @property
    def aten_parameters(self) -> tuple[str, ...] | None:
        """Parameters in the order of aten's schema; None: the op's own order."""
        return None if self.aten is None or isinstance(self.aten, str) else self.aten[1:]

    @property
    def arg_kinds(self) -> dict[str, str]:
        """The number parameters, with their kinds (keys of `ANNOTATIONS`)."""
        return arg_kinds(self.body)

    @property
    def sharding(self) -> str | None:
        """How distributed tensors are processed (torch/distributed/tensor), from the tags.

        "linear", "elementwise" (equally sharded operands are processed locally, for "linear" also
        partial sums) or "random" (each process would draw its own numbers); None: on full tensors.
        """
        tags = self.tags
        return ("linear" if "linear_pointwise" in tags else "elementwise" if "pointwise" in tags
                else "random" if "nondeterministic_seeded" in tags else None)

    @property
    def capture(self) -> str | None:
        """How torch.compile and torch.export capture the op, from its tags and condition.

        "meta", "values" or "sizes", followed by the condition; None: it is recorded.
        """
        tags = self.tags
        kind = "meta" if "metadata_only" in tags else "values" if "data_dependent_output" in tags else "sizes" if "dynamic_output_shape" in tags else None
        return f"{kind} {self.condition}" if self.condition else kind

    @property
    def lowering(self) -> Callable[..., Any] | None:
        """Lowering of the op for export formats (backend/export); None: decomposed."""
        from mindtorch.backend.export.lowering import LOWERINGS
        return LOWERINGS.get(self.main.qualname)


# ------------------------------------------------------------------ number parameters
#
# Annotations of the parameters of ops and Tensor methods that are numbers. An annotation defines
# how a tensor passed for the number is interpreted, as PyTorch's op schemas do
# (tests/ops/test_number_arguments.py compares both). A parameter without annotation is not a
# number, or a tensor selects another overload, or the op's body checks it.
#
# None of them accepts a tensor that requires grad, because its gradient would be lost.

#: no tensor
Bool: TypeAlias = Annotated[Any, "bool"]
#: a 0-dim integer tensor
Int: TypeAlias = Annotated[Any, "int"]
#: like Int, or an integer tensor with a single element
SymInt: TypeAlias = Annotated[Any, "size"]
#: a valid index: an integer or bool tensor with a single element
Index: TypeAlias = Annotated[Any, "index"]
#: a 0-dim tensor
Scalar: TypeAlias = Annotated[Any, "number"]
#: a 0-dim tensor
Float: TypeAlias = Annotated[Any, "float"]
_NUMBERS = tuple(zip((Bool, Int, SymInt, Index, Scalar, Float), ("Bool", "Int", "SymInt", "Index", "Scalar", "Float")))
#: kind ("bool", "int", "size", "index", "number", "float") -> name of its annotation
ANNOTATIONS = {t.__metadata__[0]: name for t, name in _NUMBERS}


def arg_kinds(fn: Callable[..., Any]) -> dict[str, str]:
    """Returns the number parameters of a function, with their kinds (keys of `ANNOTATIONS`).

    The first call removes the annotations from the function, so that public signatures are
    PyTorch's.
    """
    f = fn
    while f.__class__ is types.FunctionType and "__wrapped__" in f.__dict__ and "__signature__" not in f.__dict__:
        f = f.__wrapped__           # type: ignore[attr-defined]
    if f.__class__ is not types.FunctionType:
        return {}
    kinds = f.__dict__.get("arg_kinds")
    if kinds is None:
        given = f.__annotations__
        kinds = {p: t.__metadata__[0] for p, t in given.items() if t.__class__ is _ANNOTATED}
        if kinds:
            f.__annotations__ = {p: t for p, t in given.items() if p not in kinds}
            f.arg_kinds = kinds     # type: ignore[attr-defined]
    return kinds


_ANNOTATED = type(Bool)
