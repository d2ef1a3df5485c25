"""Kernel table: what each aclnn kernel computes, in terms of host arrays.

A kernel is registered under its name with its C arguments, in the order of CANN's header:

    kernel("Add Adds", "self, other, alpha:scalar, out!")(lambda self, other, alpha, out: torch.add(self, other, alpha=alpha))

Each argument is a tensor unless a kind is given:

    tensor      a strided view of device memory, or None for a null pointer; `self!` is written with
                the function's result
    tensors     a list of tensors (aclTensorList), or None
    scalar      aclScalar: bool, int, float or complex by its own dtype; None for a null pointer
    scalars     a list of scalars (aclScalarList), or None
    ints bools floats    arrays: a list, or None
    int int32 int8 bool  passed by value (int: 64 bits); the narrow ones use only their low bits
    double float         passed by value
    string      a C string, or None for a null pointer

The function receives all arguments in this order, including outputs (whose shape and dtype often
matter), and returns the values of the arguments marked `!`: one value, or a tuple with None for
unchanged outputs. Results are cast to the output's dtype, as the chip's kernels do; a shape that
does not fit is an error. `Sized(value)` is a result whose shape the kernel determines (the output
has the largest possible size).

aclop entries (`op("Name")`) receive lists of inputs and outputs and a dict of attributes, and
return the values of the outputs.
"""
from __future__ import annotations

import dataclasses
import inspect
from typing import Any, Callable

from mindtorch.tools.standin.kernels._engine import torch

KINDS = {"tensor", "tensors", "scalar", "scalars", "ints", "bools", "floats", "int", "int32", "int8", "bool", "double", "float", "string"}


@dataclasses.dataclass(frozen=True)
class Argument:
    """One argument of a C prototype: its name, its kind, and whether the kernel writes it."""

    name: str
    kind: str
    written: bool


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel: its arguments, and the function that computes the values of the written ones."""

    name: str
    arguments: tuple[Argument, ...]
    function: Callable[..., Any]


class Sized:
    """A result whose shape depends on values: the output's memory has the maximum size, and
    MindSpore queries the shape afterwards."""

    def __init__(self, value):
        self.value = value


KERNELS: dict[str, Kernel] = {}
OPS: dict[str, Callable[..., Any]] = {}


def _argument(text):
    name, _, kind = text.strip().partition(":")
    written = name.endswith("!") or kind.endswith("!")
    name, kind = name.rstrip("!"), kind.rstrip("!") or "tensor"
    if kind not in KINDS or not name.isidentifier():
        raise ValueError(f"invalid argument declaration {text!r}")
    return Argument(name, kind, written)


def kernel(names: str, arguments: str):
    """Registers a function under one or more kernel names (without `aclnn`), with their C
    arguments."""
    parsed = tuple(_argument(a) for a in arguments.split(",") if a.strip())

    def enter(function):
        if inspect.isfunction(function):  # (builtin functions have no signature)
            accepted = function.__code__.co_argcount
            if not function.__code__.co_flags & inspect.CO_VARARGS and accepted != len(parsed):
                raise TypeError(f"{names}: {len(parsed)} arguments are declared, the function takes {accepted}")
        for name in names.split():
            if name in KERNELS:
                raise ValueError(f"aclnn{name} is registered twice")
            KERNELS[name] = Kernel(name, parsed, function)
        return function
    return enter


def op(names: str):
    """Registers a function (inputs, outputs, attributes) -> values of the outputs, for ops without
    an aclnn kernel."""
    def enter(function):
        for name in names.split():
            if name in OPS:
                raise ValueError(f"aclop {name} is registered twice")
            OPS[name] = function
        return function
    return enter


def put(receiver, value):
    """Writes a result, cast to the output's dtype. Shapes may differ only by dimensions of size
    one."""
    if receiver is None or value is None:
        return
    if not isinstance(value, torch.Tensor):
        value = torch.as_tensor(value)
    if receiver.shape != value.shape:
        if [n for n in receiver.shape if n != 1] != [n for n in value.shape if n != 1]:
            raise ValueError(f"a result of shape {list(value.shape)} for an output of shape {list(receiver.shape)}")
        value = value.reshape(receiver.shape)
    receiver.copy_(value)


def gradients(function, seed, *inputs):
    """Returns the gradients of function(*inputs) at `seed`: one for each floating tensor among the
    inputs, None for the others."""
    with torch.enable_grad():
        inputs = [x.detach().clone().requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]
        wanted = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]
        found = iter(torch.autograd.grad(function(*inputs), wanted, seed.detach().clone(), allow_unused=True))
    return [next(found) if isinstance(x, torch.Tensor) and x.requires_grad else None for x in inputs]


def generator(seed, offset):
    """Returns a generator at an offset of a random number stream. (The same offset returns the same
    numbers; they are not the chip's.)"""
    g = torch.Generator()
    g.manual_seed((seed * 1000003 + offset * 7919) & ((1 << 63) - 1))
    return g
