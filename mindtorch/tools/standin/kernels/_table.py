"""The table of kernels: what an aclnn kernel computes, in terms of host arrays.

A kernel stands here under its name with its C arguments, as CANN's header has them, in a line:

    kernel("Add Adds", "self, other, alpha:scalar, out!")(lambda self, other, alpha, out: torch.add(self, other, alpha=alpha))

Each argument is a tensor unless its kind is said:

    tensor      a strided view of device memory, or None for a null pointer; `self!` is written with what the function returns
    tensors     a list of such (aclTensorList), or None
    scalar      aclScalar: bool, int, float or complex by its own dtype; None for a null pointer
    scalars     a list of such (aclScalarList), or None
    ints bools floats   arrays of numbers: a list, or None
    int int32 int8 bool   numbers given by value (int: 64 bits); of the narrow ones only their low bits hold something
    double float    given by value
    string      a C string, or None for a null pointer

The function gets all arguments in this order, outputs as well (their shape and dtype are often what counts), and returns what the arguments marked `!`
receive: one value, or a tuple with None for what stays as it is. Results are cast to the receiver's dtype as the chip's kernels do; a shape that does not fit
is an error. `Sized(value)` is a result whose shape the kernel finds out (the receiver has the largest size possible).

aclop's entries (`op("Name")`) get lists of inputs and outputs and a dict of attributes, and return values of the outputs.
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
    """A kernel: its arguments, and the function that computes what the written ones receive."""

    name: str
    arguments: tuple[Argument, ...]
    function: Callable[..., Any]


class Sized:
    """A result whose shape depends on values: the receiver's memory has room for it, and MindSpore asks for the shape afterwards."""

    def __init__(self, value):
        self.value = value


KERNELS: dict[str, Kernel] = {}
OPS: dict[str, Callable[..., Any]] = {}


def _argument(text):
    name, _, kind = text.strip().partition(":")
    written = name.endswith("!") or kind.endswith("!")
    name, kind = name.rstrip("!"), kind.rstrip("!") or "tensor"
    if kind not in KINDS or not name.isidentifier():
        raise ValueError(f"what argument is {text!r}?")
    return Argument(name, kind, written)


def kernel(names: str, arguments: str):
    """Enters a function under one or more kernels' names (without `aclnn`), with their C arguments."""
    parsed = tuple(_argument(a) for a in arguments.split(",") if a.strip())

    def enter(function):
        if inspect.isfunction(function):         # (builtin functions do not say what they take)
            taken = function.__code__.co_argcount
            if not function.__code__.co_flags & inspect.CO_VARARGS and taken != len(parsed):
                raise TypeError(f"{names}: {len(parsed)} arguments are declared, the function takes {taken}")
        for name in names.split():
            if name in KERNELS:
                raise ValueError(f"aclnn{name} stands in the table twice")
            KERNELS[name] = Kernel(name, parsed, function)
        return function
    return enter


def op(names: str):
    """Enters a function (inputs, outputs, attributes) -> values of the outputs, for ops without aclnn kernel."""
    def enter(function):
        for name in names.split():
            if name in OPS:
                raise ValueError(f"aclop {name} stands in the table twice")
            OPS[name] = function
        return function
    return enter


def put(receiver, value):
    """Writes a result: cast to the receiver's dtype; shapes may differ in ones only."""
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
    """Gradients of function(*inputs) at `seed`, one for each tensor among the inputs, None for the others."""
    with torch.enable_grad():
        inputs = [x.detach().clone().requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]
        wanted = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]
        found = iter(torch.autograd.grad(function(*inputs), wanted, seed.detach().clone(), allow_unused=True))
    return [next(found) if isinstance(x, torch.Tensor) and x.requires_grad else None for x in inputs]


def generator(seed, offset):
    """A generator at a place of a stream of random numbers. (The same place gives the same numbers; they are not the chip's.)"""
    g = torch.Generator()
    g.manual_seed((seed * 1000003 + offset * 7919) & ((1 << 63) - 1))
    return g
