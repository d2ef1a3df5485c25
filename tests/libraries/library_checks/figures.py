"""Numeric fingerprints of a library check, so that runs with PyTorch and with mindtorch can be
compared for the same seed.

`Seen` records the local variables of the checks' own functions when these return: tensors and
arrays as the mean of their absolute values; modules as that of their parameters, gradients and
buffers; scalars unchanged. It does not inspect or modify the libraries' own frames, and calls no op
while they run.

figures.json holds PyTorch's figures; `python tests/libraries/check.py --torch` generates it, in an
environment with PyTorch and the libraries.
"""
import json
import math
import os
import random
import sys

FILE = os.path.join(os.path.dirname(__file__), "figures.json")
#: number of recorded function calls, in addition to the check itself (the right-hand side of an
#: equation is called hundreds of times)
_CALLS = 24
_OTHER = "other calls or variables"
_PARTS = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")
#: relative tolerances of a figure, and the size below which a figure counts as this size (gradients
#: of 0.004 after normalization over few values differ by 1% in float32, and PyTorch's differ as
#: much from its own in float64)
BOUND, DEVICE_BOUND, SMALL = 2e-3, 1e-2, 1e-2


class Seen:
    """Context manager that records the local variables of functions of these files when they
    return."""

    def __init__(self, *files):
        self.files, self.calls = files, []
        self.own = None

    def __enter__(self):
        # If a debugger or coverage.py is already tracing, leave it active. A profile function also
        # sees calls and returns, but is several times slower.
        self.profiles = sys.gettrace() is not None
        if self.profiles:
            sys.setprofile(self._profiled)
        else:
            sys.settrace(self._called)
        return self

    def __exit__(self, *exc):
        if self.profiles:
            sys.setprofile(None)
        else:
            sys.settrace(None)

    def _profiled(self, frame, event, arg):
        if frame.f_code.co_filename in self.files and frame.f_code.co_name not in _PARTS:
            self.own = self.own or frame
            self._returned(frame, event, arg)

    def _called(self, frame, event, arg):
        if frame.f_code.co_filename not in self.files or frame.f_code.co_name in _PARTS:
            return None
        frame.f_trace_lines = False
        self.own = self.own or frame
        return self._returned

    def _returned(self, frame, event, arg):
        if event == "return" and (frame is self.own or len(self.calls) < _CALLS):
            found = {name: told for name, value in sorted(frame.f_locals.items()) if (told := tell(value)) not in (None, [])}
            if found:
                self.calls.append([frame.f_code.co_name, found])
        return self._returned


def tell(value, depth=0):
    """Returns the figures of a value: a number, a nested list of numbers, or None if there are
    none."""
    import numpy as np
    torch = sys.modules.get("torch")
    if isinstance(value, (bool, int, float)):
        return _short(value)
    if isinstance(value, (list, tuple)):
        return [t for v in value[:16] if (t := tell(v, depth + 1)) is not None] if depth < 3 else None
    if isinstance(value, dict):
        return tell(list(value.values()), depth)
    if torch and isinstance(value, torch.Tensor):
        slope = value.grad if value.is_leaf and value.requires_grad else None
        return _tensor(value) if slope is None else [_tensor(value), _tensor(slope)]
    if isinstance(value, np.ndarray):
        return _size(value)
    if torch and isinstance(value, torch.nn.Module):
        parts = [[p for p in value.parameters()], [p.grad for p in value.parameters() if p.grad is not None], [b for b in value.buffers()]]
        return [_short(sum(t for x in part if isinstance(t := _tensor(x), (int, float)))) for part in parts]
    return None


def _tensor(x):
    if x.is_meta:
        return None
    try:
        torch, x = sys.modules["torch"], x.detach().cpu()
        x = (x.to_dense() if x.is_sparse else x).as_subclass(torch.Tensor)
        return _size(x.to(torch.complex128 if x.is_complex() else torch.float64).numpy())
    # (a value inside a transform such as vmap cannot be read)
    except (RuntimeError, ValueError, TypeError):
        return "unread"


def _size(a):
    if a.dtype.kind not in "biufc":
        return None
    return _short(float(abs(a.astype("complex128" if a.dtype.kind == "c" else "float64")).mean())) if a.size else 0


def _short(number):
    return number if isinstance(number, int) else float(f"{number:.7g}")


def seed():
    """Seeds all random number generators for a check."""
    import numpy as np
    import torch
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


def apart(mine, theirs, bound=BOUND):
    """Returns the differences between two checks' figures, as sentences."""
    said = []
    names = [[c[0], sorted(c[1])] for c in mine], [[c[0], sorted(c[1])] for c in theirs]
    if names[0] != names[1]:
        first = next((a, b) for a, b in zip(names[0] + [None], names[1] + [None]) if a != b)
        return [f"{_OTHER}: {first[0]}, torch has {first[1]}"]
    for (call, found), (_, expected) in zip(mine, theirs):
        for name, value in found.items():
            if not _same(value, expected[name], bound):
                said.append(f"{call}.{name} is {value}, torch has {expected[name]}")
    return said


def _same(a, b, bound):
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_same(x, y, bound) for x, y in zip(a, b))
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a == b or (math.isnan(a) and math.isnan(b)) or abs(a - b) <= bound * max(SMALL, abs(b))
    return a == b


def count(calls):
    """Returns the number of figures."""
    def one(value):
        return sum(map(one, value)) if isinstance(value, list) else 1
    return sum(one(v) for _, found in calls for v in found.values())


def _read():
    with open(FILE, encoding="utf-8") as f:
        return json.load(f)


def release():
    """Returns the PyTorch version of the stored figures."""
    return _read()["torch"]


def expected(name, release):
    """Returns PyTorch's figures for a library's version, or the reason why there are none ("" if it
    was never run)."""
    row = _read()["libraries"].get(name)
    if row is None:
        return ""
    if row["version"] != release:
        return f"torch's figures are for version {row['version']}"
    return row.get("why") or row["calls"]
