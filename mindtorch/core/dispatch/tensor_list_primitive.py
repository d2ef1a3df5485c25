"""Primitives over a sequence of tensors, for joining ops (cat, stack).

        cat_ = variadic("cat", "tensors, *, dim", rule)
        cat_([x, y], dim=0)

The kernel receives the arrays one by one, fwd(*arrays, dim=dim), so half precision, layout rules
and the meta device work as for `primitive`.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mindtorch.backend.interface import Kernel, Layout
from mindtorch.backend.mindspore.private import STRIDED, from_array, from_contiguous
from mindtorch.core.dispatch.dispatcher import dispatch_state
from mindtorch.core.autograd.grad_mode import INFERENCE, mode
from mindtorch.core.dispatch.codegen import compile_template
from mindtorch.core.dispatch.generated_files import caller
from mindtorch.core.dispatch.primitives import (PRIMITIVES, Node, Primitive, PrimitiveFunction, Rule, _operand_error, _low, _names_read, _strided,
                                                host_kernel, record)
from mindtorch.core.tensor.tensor import Tensor


class TensorListPrimitive(Primitive):
    """A primitive with a variable number of inputs."""

    variadic = True

    def needed(self, mask: int) -> tuple[Any, ...]:
        names = _names_read(self.grads[0].__code__)         # type: ignore[union-attr]
        r = self._masks[0] = (), (), "shapes" in names, "dtypes" in names, False
        # The mask depends on one call's inputs, but what is saved does not.
        self._masks = _Always(r)
        return r

    def run_with(self, fwd: Kernel, low: Callable[..., Any] | None, args: Sequence[Any], kw: dict[str, Any]) -> Any:
        return super().run_with(fwd, low, tuple(args[0]), kw)

    def backward(self, node: Node, gs: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        node._attrs["needs"] = tuple([e is not None for e in node._next_edges])      # type: ignore[index]
        return self.grads[0](node, gs[0])       # type: ignore[misc]


class _Always(dict):
    """A dict with the same value for every key."""

    def __init__(self, value):
        self.value = value

    def get(self, key):
        return self.value


_TEMPLATE = """
def name_(tensors_, *, {attrs}):
    if dispatch_state.primitives:
        return dispatch_state.call_primitive(PRIM, (tensors_,), {kw})
    try:
        xs_ = [t_._array for t_ in tensors_]
    except AttributeError:
        raise _bad('name_', ('tensors_',) * len(tensors_), tensors_) from None
    way_ = fwd
    if STRIDED.on:
        for x_ in xs_:
            if STRIDED.unusual_strides or not x_.flags.c_contiguous:
                way_ = None
                break
    if way_ is None:
        r_ = _strided(PRIM, fwd, {low}, xs_, {kw})
{half}    else:
        r_ = fwd(*xs_, {kws})
    y_ = from_contiguous(r_) if r_.flags.carray else from_array(r_)
    y_.__class__ = Tensor
    y_._array = r_
    for t_ in tensors_:
        if t_._requires_grad_:
            if MODE.on:
                return record(PRIM, y_, tensors_, {kw})
            break
    if INFERENCE.ever and MODE.inference:
        y_._inference = True
    return y_
"""


@functools.lru_cache(None)
def _source(attrs, raw):
    names = [f"s{i}_" for i in range(attrs)]
    kw = "{" + ", ".join(f"{s!r}: {s}" for s in names) + "}"
    half = "" if raw else f"    elif any([x_.itemsize == 2 for x_ in xs_]):\n        r_ = _low(fwd, xs_, {kw})\n"
    return _TEMPLATE.format(attrs=", ".join(names), kw=kw, kws=", ".join(f"{s}={s}" for s in names), low="None" if raw else "_low", half=half)


def tensor_list_primitive(name: str, signature: str, rule: Rule, *, node: str | None = None, raw: bool = False,
                          layout: Layout | None = None) -> PrimitiveFunction:
    """Creates a differentiable function over a sequence of tensors from devices' kernels.

        signature  "tensors, *, dim": the sequence; after the star at least one constant, which is a
                   plain Python value
        rule       rule(c, g): returns one gradient per tensor, None where `c.needs` (one bool per
                   tensor) is false. It reads c.shapes, c.dtypes and c.<constant>; the tensors are
                   not saved
        node, raw, layout  as in `primitive`; there is one result, an array
    """
    fwd = host_kernel(name)
    tensors, _, constants = signature.partition("*")
    tensors, attrs = tensors.strip(" ,"), [s.strip() for s in constants.split(",") if s.strip()]
    prim = TensorListPrimitive(name, fwd, (rule,), [tensors], attrs, node, False, raw, (), (), None, layout)
    given = {"name_": name, "tensors_": tensors, **{f"s{i}_": n for i, n in enumerate(attrs)}}
    scope = {"fwd": fwd, "PRIM": prim, "ndarray": np.ndarray, "from_contiguous": from_contiguous, "from_array": from_array, "Tensor": Tensor,
             "MODE": mode, "INFERENCE": INFERENCE, "record": record, "_low": _low, "_bad": _operand_error, "STRIDED": STRIDED, "_strided": _strided,
             "dispatch_state": dispatch_state}
    f: Any = compile_template(_source(len(attrs), raw), given, name, "primitives", f"{name} from {caller()}:", scope)
    f.prim, prim.function = prim, f
    f.__module__ = "mindtorch.core.dispatch.primitives"
    PRIMITIVES[name] = f
    return f
