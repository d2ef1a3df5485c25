"""Tensors as text, character for character as PyTorch prints them.

Works on plain data: a NumPy array and names. It does not depend on the Tensor class.
"""

import contextlib
import math
from dataclasses import asdict, dataclass

import numpy as np


@dataclass
class _Options:
    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_PROFILES = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}

PRINT_OPTS = _Options()  # the current options, under PyTorch's name


def set_printoptions(precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None):
    """Sets how tensors are printed.

    Arguments that are None change nothing, except `sci_mode`: None selects the notation per tensor.

    precision: digits after the decimal point. threshold: number of elements above which the output
    is abridged. edgeitems: number of elements then shown at each end of a dimension. linewidth:
    columns. profile: "default", "short" or "full"; the other arguments override its values, and an
    unknown name changes nothing. sci_mode: scientific notation or not.
    """
    for name, value in _PROFILES.get(profile, {}).items():
        setattr(PRINT_OPTS, name, value)
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    for name, value in given.items():
        if value is not None:
            setattr(PRINT_OPTS, name, value)
    PRINT_OPTS.sci_mode = sci_mode


def get_printoptions():
    """Returns the current options, as a dict that `set_printoptions` accepts."""
    return asdict(PRINT_OPTS)


@contextlib.contextmanager
def printoptions(**options):
    """Context manager that applies the given options of `set_printoptions`."""
    before = get_printoptions()
    set_printoptions(**options)
    try:
        yield
    finally:
        set_printoptions(**before)


# ------------------------------------------------------------------ elements


class _Format:
    """Common format of all elements of one array, chosen from their values."""

    def __init__(self, values):
        """values: 1-d array of the printed elements."""
        self.precision = PRINT_OPTS.precision
        self.floating = values.dtype.kind == "f"
        self.integral = True  # no element has a fraction
        self.scientific = False
        self.width = 1
        if not self.floating:
            self.width = max([1, *(len(str(v)) for v in values.tolist())])
            return
        values = values.astype(np.float64)
        values = values[np.isfinite(values) & (values != 0)]
        if not values.size:
            return
        self.integral = bool((values == np.ceil(values)).all())
        size = np.abs(values)
        low, high = float(size.min()), float(size.max())
        with np.errstate(over="ignore"):
            self.scientific = high / low > 1000.0 or high > 1e8 or (not self.integral and low < 1e-4)
        if PRINT_OPTS.sci_mode is not None:
            self.scientific = PRINT_OPTS.sci_mode
        self.width = max(1, *(len(self._digits(v)) for v in values.tolist()))

    def _digits(self, value):
        if not self.floating:
            return str(value)
        if self.scientific:
            return f"{value:.{self.precision}e}"
        if self.integral:
            return f"{value:.0f}." if math.isfinite(value) else f"{value:.0f}"
        return f"{value:.{self.precision}f}"

    def __call__(self, value):
        return self._digits(value).rjust(self.width)


class _ComplexFormat:
    def __init__(self, values):
        self.real = _Format(values.real)
        self.imag = _Format(values.imag)
        self.width = self.real.width + self.imag.width + 1

    def __call__(self, value):
        imag = self.imag(value.imag).lstrip()
        sign = "" if imag[0] in "+-" else "+"
        return f"{self.real(value.real)}{sign}{imag}j"


def _printable(array):
    """Converts `array` to a dtype whose elements `tolist` returns as printable Python numbers."""
    kind = array.dtype.kind
    if kind == "c":
        return array.astype(np.complex128, copy=False)
    if kind == "V":  # an extension type such as bfloat16
        array = array.astype(np.float32)
    if array.dtype.kind == "f":
        return array.astype(np.float64, copy=False)
    return array


# ------------------------------------------------------------------ nesting


def _abridged(array):
    """Returns the elements that remain when `array` is abridged, as a 1-d array."""
    edge = PRINT_OPTS.edgeitems
    for axis, n in enumerate(array.shape):
        if n > 2 * edge:
            array = np.take(array, [*range(edge), *range(n - edge, n)], axis=axis)
    return array.ravel()


def _nested(array, indent, abridge, form):
    if array.ndim == 0:
        return form(array.item())
    edge = PRINT_OPTS.edgeitems
    cut = abridge and len(array) > 2 * edge
    parts = [*array[:edge], None, *array[len(array) - edge :]] if cut else list(array)
    if array.ndim == 1:
        return _row(parts, indent, form)
    texts = ["..." if part is None else _nested(part, indent + 1, abridge, form) for part in parts]
    return "[" + ("," + "\n" * (array.ndim - 1) + " " * (indent + 1)).join(texts) + "]"


def _row(parts, indent, form):
    texts = [" ..." if part is None else form(part.item()) for part in parts]
    per_line = max(1, (PRINT_OPTS.linewidth - indent) // (form.width + 2))
    lines = [", ".join(texts[i : i + per_line]) for i in range(0, len(texts), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def contents_str(array, indent=0):
    """Returns the elements of `array` in nested brackets.

    indent: the column where the text starts.
    """
    array = _printable(array)
    abridge = array.size > PRINT_OPTS.threshold
    values = _abridged(array) if abridge else array.ravel()
    form = _ComplexFormat(values) if array.dtype.kind == "c" else _Format(values)
    return _nested(array, indent, abridge, form)


# ------------------------------------------------------------------ complete tensors


def tensor_str(
    array,
    dtype_name,
    *,
    shape=None,
    requires_grad=False,
    grad_fn_name=None,
    device=None,
    is_parameter=False,
    class_name=None,
    default_dtype="float32",
    indent=0,
):
    """Returns the `repr` of a tensor.

    array: its elements (bfloat16 and similar may come as float32), or None on the meta device,
    where only `shape` is given. dtype_name: e.g. "float32". device: None for the default device,
    else its text, e.g. "npu:0". grad_fn_name: e.g. "MulBackward0". class_name: of a subclass of
    Tensor or Parameter. default_dtype: name of the floating dtype that is not printed. indent: the
    column where the text starts.
    """
    prefix = f"{class_name}(" if class_name else "tensor("
    indent += len(prefix)
    notes = []
    if device is not None:
        notes.append(f"device='{device}'")
    default_complex = "complex128" if default_dtype == "float64" else "complex64"
    silent = (default_dtype, default_complex, "int64", "bool")
    if array is None or array.size == 0:
        shape = tuple(array.shape if shape is None else shape)
        text = "..." if array is None else "[]"
        if array is None or len(shape) != 1:
            notes.append(f"size={shape}")
        silent = (default_dtype,)
    else:
        text = contents_str(array, indent)
    if dtype_name not in silent:
        notes.append(f"dtype=torch.{dtype_name}")
    if grad_fn_name is not None:
        notes.append(f"grad_fn=<{grad_fn_name}>")
    elif requires_grad:
        notes.append("requires_grad=True")

    last = text[text.rfind("\n") + 1 :]
    column = len(last) + 2 + (0 if "\n" in text else indent)  # PyTorch counts two too many
    for note in notes:
        if column + len(note) + 2 > PRINT_OPTS.linewidth:
            text += ",\n" + " " * indent + note
            column = indent + len(note)
        else:
            text += ", " + note
            column += len(note) + 2
    text = prefix + text + ")"
    if is_parameter and class_name:
        text = f"Parameter({text})"
    return "Parameter containing:\n" + text if is_parameter else text
