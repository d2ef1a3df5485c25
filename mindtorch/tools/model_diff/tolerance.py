"""Decides whether two runs of one computation differ, or differ only by rounding.

The error of a floating point result grows with the square root of the number of terms it sums
(because roundings are independent), with the number of layers before it, and with the error of its
inputs. `bound` models that growth; a larger difference is "different".
"""
import dataclasses

import numpy as np

from mindtorch.tools.model_diff.activation_recorder import FUNCTIONALS

SAME, NOISE, DIFFERENT = "same", "noise", "different"
_EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7, "complex64": 2.0**-23,
        "complex128": 2.0**-52, "float8_e4m3fn": 2.0**-3, "float8_e5m2": 2.0**-2}
FEW_ULP = 4
SUMMED = 1e-5, 1e-13  # relative error of float32 and float64 sums


@dataclasses.dataclass
class Verdict:
    """Result of comparing one tensor of the second side (`a`) with the first side's (`b`).

    `relative` is the largest difference divided by the root mean square of the tensor; `max_rel` is
    the largest difference relative to the element itself. `ulp` counts units in the last place of
    the element, or of the tensor's root mean square where the element is smaller.
    """

    verdict: str
    max_abs: float = 0.0
    max_rel: float = 0.0
    relative: float = 0.0
    cosine: float = 1.0
    ulp: float = 0.0
    tolerance: float = 0.0
    why: str = ""
    beyond: int = 0         # elements beyond the tolerance

    @property
    def bad(self):
        return self.verdict == DIFFERENT

    def as_dict(self):
        return dataclasses.asdict(self)


def bound(dtype, depth=0, terms=1):
    """Returns the expected relative error at `depth` layers from the input, in sums of `terms`
    terms."""
    return 4 * _EPS.get(dtype, 0.0) * (1 + depth) ** 0.5 * (1 + terms) ** 0.5


def rms(a):
    if not a.size:
        return 0.0
    v = np.abs(a).astype(np.float64)
    v = v[np.isfinite(v)]
    return float(np.sqrt(np.mean(v * v))) if v.size else 0.0


def coarsest(*dtypes):
    """Returns the dtype with the largest rounding error."""
    return max(dtypes, key=lambda d: _EPS.get(d, 0.0))


WHO = "real torch", "mindtorch"


def judge(a, b, tolerance=0.0, floor=0.0, who=WHO):
    """Compares two `Held` tensors (either may be None if it does not exist).

        tolerance  relative to the element and to the root mean square of the tensor
        floor      absolute error that is expected in any case
        who        names of b's side and of a's
    """
    if a is None or b is None:
        if a is b:
            return Verdict(SAME)
        return Verdict(DIFFERENT, float("inf"), float("inf"), float("inf"), 0.0, float("inf"), tolerance,
                       f"missing in {who[a is None]}")
    if a.shape != b.shape:
        return Verdict(DIFFERENT, float("inf"), float("inf"), float("inf"), 0.0, float("inf"), tolerance,
                       f"shape {list(a.shape)}, in {who[0]} {list(b.shape)}")
    if a.dtype != b.dtype:
        return Verdict(DIFFERENT, float("inf"), float("inf"), float("inf"), 0.0, float("inf"), tolerance,
                       f"dtype {a.dtype}, in {who[0]} {b.dtype}")
    if a.odd != b.odd:
        return Verdict(DIFFERENT, float("inf"), float("inf"), float("inf"), 0.0, float("inf"), tolerance,
                       f"{a.odd[0]} NaN and {a.odd[1]} infinite elements, in {who[0]} {b.odd[0]} and {b.odd[1]}")
    if not a.a.size or np.array_equal(a.a, b.a):
        return Verdict(SAME, tolerance=tolerance)
    if b.a.dtype.kind not in "fc":
        wrong = int((a.a != b.a).sum())
        size = float(np.abs(a.a.astype(np.float64) - b.a.astype(np.float64)).max()) if b.a.dtype.kind in "iub" else 1.0
        return Verdict(DIFFERENT, size, wrong / a.a.size, wrong / a.a.size, 0.0, float("inf"), 0.0,
                       f"{wrong} of {a.a.size} elements")
    wide = np.complex128 if b.a.dtype.kind == "c" else np.float64
    x, y = a.a.astype(wide), b.a.astype(wide)
    odd = ~(np.isfinite(x) & np.isfinite(y))
    if odd.any():
        if not np.array_equal(x[odd], y[odd], equal_nan=True):
            at = int((odd & ~((x == y) | (np.isnan(x) & np.isnan(y)))).sum())
            return Verdict(DIFFERENT, float("inf"), float("inf"), float("inf"), 0.0, float("inf"), tolerance,
                           f"NaN or infinity on one side only, at {at} of {x.size} elements")
        x, y = np.where(odd, 0, x), np.where(odd, 0, y)
        if np.array_equal(x, y):
            return Verdict(SAME, tolerance=tolerance)
    d, size = np.abs(x - y), rms(y)
    top = float(d.max())
    unit = _EPS.get(b.dtype, 2.0**-52)
    spacing = np.maximum(np.abs(y), np.finfo(np.float32).tiny) * unit
    with np.errstate(over="ignore"):
        relative = d / np.maximum(np.abs(y), np.finfo(np.float64).tiny)
    if b.of is not None:  # statistics computed over all elements have their own rounding error
        floor = floor + np.where(np.arange(len(d)) < len(d) - FUNCTIONALS, 0, SUMMED[b.dtype == "float64"] * size)
    ok = (d <= tolerance * (size + np.abs(y)) + floor) | (d <= FEW_ULP * spacing)
    norm = np.linalg.norm(x) * np.linalg.norm(y)
    return Verdict(NOISE if ok.all() else DIFFERENT, top, float(relative.max()), top / size if size else float("inf"),
                   float(np.real(np.vdot(y, x)) / norm) if norm else (1.0 if top == 0 else 0.0),
                   float((d / np.maximum(spacing, size * unit)).max()), tolerance,
                   "" if ok.all() else f"{int((~ok).sum())} of {ok.size} elements beyond the tolerance", int((~ok).sum()))


def worst(verdicts):
    """Returns the most severe verdict: different before noise before same, then the largest
    relative error."""
    order = {SAME: 0, NOISE: 1, DIFFERENT: 2}
    return max(verdicts, key=lambda v: (order[v.verdict], v.relative), default=Verdict(SAME))
