"""Limits of the chip: the dtypes that CANN's documentation lists for each argument of an aclnn
kernel.

limits.json is edited by hand. It has an object per document, `repository folder document`, with an
object per kernel (its name without `aclnn`), with an entry per group of arguments:

    "ops-math math/erfinv aclnnErfinv&aclnnInplaceErfinv": {
      "Erfinv": {"0 self": {"910B": "floats ints bool", "910A": "f32 f16"}}
    }

The number before an argument's name is its index among the arguments of the C function, from 0 on.
`double` and `float` are not counted: they are passed in other registers, and a launch log does not
contain them. The value is a list of dtypes, or such a list per chip, with that of the 910B first.
A chip that is not named accepts the dtypes of the 910B without bfloat16: the 910A and the 310P
compute nothing in it. (CANN's kernels have a list for each of the two generations; those that only
move memory, MOVES, have one for all.) Arguments without documented dtypes have no limit, nor do
scalars, which are converted.

The documents belong to CANN's open operator libraries,
https://gitcode.com/cann/<repository>/tree/master/<folder>/docs/<document>.md (as of August 2026;
the 910B stands for A2 and A3). The libraries' own lists of about a dozen kernels contain more
dtypes than their documents, and limits.json includes these (Sigmoid, Elu, LeakyRelu, Log10,
IsFinite, MinDim's indices, ...). Quantized kernels and multi-chip kernels are left out.
"""
from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
from collections.abc import Iterable, Mapping

CHIPS = "910A", "910B", "310P"
GROUPS = {"floats": "f32 f16 bf16", "ints": "i8 i16 i32 i64 u8", "complexes": "c64 c128"}
DTYPES = frozenset("f32 f16 bf16 f64 i8 i16 i32 i64 u8 u16 u32 u64 bool c64 c128".split())
MOVES = {"InplaceCopy"}

FILE = os.path.splitext(__file__)[0] + ".json"

#: an argument in the log: tensors and arrays contain commas inside brackets
_ARGUMENT = re.compile(r'(?:\[[^]]*\]|\((?:\[[^]]*\]|[^()])*\)|"[^"]*"|[^,\[("])+')
_TENSOR = re.compile(r"T\[[^]]*\](\w+)")


@dataclasses.dataclass(frozen=True)
class Limit:
    """The dtypes that one argument of a kernel accepts."""

    kernel: str
    position: int
    argument: str
    dtypes: Mapping[str, frozenset[str]]        # by chip
    source: str


def chip_of(name: str) -> str:
    """Returns the entry of CHIPS for the name of a chip, or a product's SoC version: 910B for
    "Ascend910B2", "Ascend910_9391" (A3: same lists) or "910B".

    Raises ValueError for other names.
    """
    short = name.removeprefix("Ascend").upper()
    if short in ("910", "910A", "910PRO", "910PROA", "910PROB", "910PREMIUMA"):
        return "910A"
    if short.startswith(("910B", "910C", "910_93")):
        return "910B"
    if short.startswith("310P"):
        return "310P"
    raise ValueError(f"no limits are known for the chip {name!r}; known chips are {', '.join('Ascend' + c for c in CHIPS)}")


def _dtypes(text):
    found = frozenset(d for word in text.split() for d in GROUPS.get(word, word).split())
    if not found or found - DTYPES:
        raise ValueError(f"unknown dtypes in {text!r}")
    return found


def _by_chip(kernel, given):
    """Returns the dtypes of each chip for a value of limits.json."""
    given = given if isinstance(given, dict) else {"910B": given}
    dtypes = {c: _dtypes(text) for chips, text in given.items() for c in chips.split()}
    without = dtypes["910B"] if kernel in MOVES else dtypes["910B"] - {"bf16"}
    return {c: dtypes.get(c, without) for c in CHIPS}


def _unique(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"limits.json has an entry twice among {', '.join(k for k, _ in pairs)}")
    return found


@functools.cache
def limits() -> dict[str, dict[int, Limit]]:
    """Returns all limits, by kernel (without `aclnn`) and position."""
    with open(FILE, encoding="utf-8") as f:
        documents = json.load(f, object_pairs_hook=_unique)
    out: dict[str, dict[int, Limit]] = {}
    entries = ((source, kernel, *entry) for source, kernels in documents.items() for kernel, groups in kernels.items() for entry in groups.items())
    for source, kernel, arguments, given in entries:
        dtypes = _by_chip(kernel, given)
        for argument in arguments.split(", "):
            position, called = argument.split()
            if int(position) in out.setdefault(kernel, {}):
                raise ValueError(f"aclnn{kernel} has two limits for argument {position}")
            out[kernel][int(position)] = Limit(kernel, int(position), called, dtypes, source)
    return out


def link(source: str) -> str:
    """Returns the URL of a document."""
    repository, folder, document = source.split()
    return f"https://gitcode.com/cann/{repository}/tree/master/{folder}/docs/{document}.md"


def lines(chip: str) -> list[str]:
    """Returns the limits of a chip, a text line per argument: `<kernel> <position>
    <dtype,dtype,...>` (position as in limits.json, not counting floats)."""
    c = chip_of(chip)
    return [f"{kernel} {position} {','.join(sorted(limit.dtypes[c]))}" for kernel, by in sorted(limits().items()) for position, limit in sorted(by.items())]


def check(kernel: str, dtypes: Mapping[str | int, str | Iterable[str] | None], chip: str = "910B") -> str | None:
    """Returns None if a chip accepts these dtypes, else a message on the rejected one. Keys are
    argument names or positions; a list of tensors has several dtypes; None is a null pointer."""
    c, by = chip_of(chip), limits().get(kernel.removeprefix("aclnn"), {})
    named = {limit.argument: limit for limit in by.values()}
    for argument, given in dtypes.items():
        limit = named.get(argument) if isinstance(argument, str) else by.get(argument)
        if limit is None or given is None:
            continue
        for dtype in (given,) if isinstance(given, str) else given:
            if dtype not in limit.dtypes[c]:
                allowed = " ".join(sorted(limit.dtypes[c]))
                return (f"aclnn{limit.kernel} does not accept {dtype} as argument {limit.position} ({limit.argument}) on Ascend{c}; "
                        f"documented dtypes: {allowed} ({link(limit.source)})")
    return None


def launched(arguments: str) -> dict[int, str | list[str]]:
    """Parses the dtypes of a launch's tensors, by position, from its arguments in a log.

        "T[2]f32, L(T[2]i8,T[2]i8), S(f32)1" -> {0: "f32", 1: ["i8", "i8"]}
    """
    out: dict[int, str | list[str]] = {}
    for position, text in enumerate(a.strip() for a in _ARGUMENT.findall(arguments)):
        found = _TENSOR.findall(text)
        if text.startswith("L("):
            out[position] = found
        elif text.startswith("T["):
            out[position] = found[0]
    return out
