"""torch.utils.flop_counter: counts FLOPs of matrix products, convolutions and attention, by module
and op.

It counts the ops that a dispatch mode intercepts (torch/utils/_python_dispatch.py): aten ops, in
forward and backward, from the shapes of their arguments and results.
"""
import warnings
from collections import defaultdict
from math import prod

from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch import _ops
from mindtorch.torch.utils._python_dispatch import TorchDispatchMode
from mindtorch.torch.utils._pytree import tree_map
from mindtorch.torch.utils.module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "register_flop_formula"]

#: op -> formula(*args, out_val=result, **kwargs)
flop_registry = {}


def get_shape(i):
    """Returns the shape of a tensor; returns other values unchanged."""
    return i.shape if is_tensor(i) else i


def shape_wrapper(f):
    """Wraps a formula over shapes so that it accepts tensors."""
    def formula(*args, out_val=None, **kwargs):
        args, kwargs, out = tree_map(get_shape, (args, kwargs, out_val))
        return f(*args, out_shape=out, **kwargs)
    formula._over_shapes = True
    return formula


def register_flop_formula(targets, get_raw=False):
    """Decorator that registers a FLOP formula for the ops `targets` (of torch.ops).

    The formula receives the shapes of the arguments and `out_shape=`; with `get_raw` it receives
    the tensors themselves and `out_val=`. Raises ValueError if a target is not an op, and
    RuntimeError if it already has a formula.
    """
    def register(formula):
        counted = formula if get_raw else shape_wrapper(formula)
        if get_raw:
            formula._get_raw = True

        def one(target):
            if not isinstance(target, (_ops.OpOverloadPacket, _higher_order())):
                raise ValueError(f"register_flop_formula(targets): expected each target to be OpOverloadPacket (i.e. torch.ops.mylib.foo), got {target} which is of "
                                 f"type {type(target)}")
            if target in flop_registry:
                raise RuntimeError(f"duplicate registrations for {target}")
            flop_registry[target] = counted
        tree_map(one, targets)
        return formula
    return register


def _higher_order():
    from mindtorch.torch._higher_order import HigherOrderOperator
    return HigherOrderOperator


def _aten(*names):
    return [_ops.find_packet("aten", n) for n in names]


# ------------------------------------------------------------------ formulas
@register_flop_formula(_aten("mm"))
def mm_flop(a_shape, b_shape, *args, out_shape=None, **kwargs):
    """FLOPs of a matrix product."""
    (m, k), (k2, n) = a_shape, b_shape
    if k != k2:
        raise AssertionError(f"matmul: inner dimensions must match (k == k2), got {k} and {k2}")
    return 2 * m * n * k


@register_flop_formula(_aten("addmm"))
def addmm_flop(self_shape, a_shape, b_shape, out_shape=None, **kwargs):
    """FLOPs of addmm; the addition is not counted."""
    return mm_flop(a_shape, b_shape)


@register_flop_formula(_aten("bmm"))
def bmm_flop(a_shape, b_shape, out_shape=None, **kwargs):
    """FLOPs of a batched matrix product."""
    if a_shape[0] != b_shape[0]:
        raise AssertionError(f"bmm: batch sizes must match, got {a_shape[0]} and {b_shape[0]}")
    return a_shape[0] * mm_flop(a_shape[1:], b_shape[1:])


@register_flop_formula(_aten("baddbmm"))
def baddbmm_flop(self_shape, a_shape, b_shape, out_shape=None, **kwargs):
    """FLOPs of baddbmm; the addition is not counted."""
    return bmm_flop(a_shape, b_shape)


@register_flop_formula(_aten("_scaled_mm"))
def _scaled_mm_flop(a_shape, b_shape, *args, out_shape=None, **kwargs):
    return mm_flop(a_shape, b_shape)


def conv_flop_count(x_shape, w_shape, out_shape, transposed=False):
    """FLOPs of a convolution: one multiply-add per weight and spatial position of the output (of
    the input if transposed)."""
    return 2 * x_shape[0] * prod(w_shape) * prod((x_shape if transposed else out_shape)[2:])


@register_flop_formula(_aten("convolution", "_convolution", "cudnn_convolution", "_slow_conv2d_forward", "convolution_overrideable"))
def conv_flop(x_shape, w_shape, _bias, _stride, _padding, _dilation, transposed, *args, out_shape=None, **kwargs):
    """FLOPs of a convolution, from the op's arguments."""
    return conv_flop_count(x_shape, w_shape, out_shape, transposed=transposed)


@register_flop_formula(_aten("convolution_backward"))
def conv_backward_flop(grad_out_shape, x_shape, w_shape, _bias, _stride, _padding, _dilation, transposed, _output_padding, _groups, output_mask, out_shape, **kwargs):
    """FLOPs of a convolution's gradients.

    The gradient of the input is the opposite convolution (transposed or not). The gradient of the
    weight is a convolution of the input with the output gradient.
    """
    count = conv_flop_count(grad_out_shape, w_shape, out_shape[0], not transposed) if output_mask[0] else 0
    if output_mask[1]:
        # Batch and channel dimensions are swapped.
        image, kernel = (grad_out_shape, x_shape) if transposed else (x_shape, grad_out_shape)
        count += conv_flop_count([image[1], image[0]], [kernel[1], kernel[0], *kernel[2:]], [0, 0, *out_shape[1][2:]])
    return count


def sdpa_flop_count(query_shape, key_shape, value_shape):
    """FLOPs of attention: the scores and their product with the values; key/value heads may be
    shared."""
    (b, h, s, d), (b2, h2, t, d2), (b3, h3, t2, e) = query_shape, key_shape, value_shape
    if not (b == b2 == b3 and h2 == h3 and d == d2 and t == t2):
        raise AssertionError(f"sdpa_flop_count: query/key/value shapes are incompatible: q={query_shape}, k={key_shape}, v={value_shape}")
    if h < h2 or h % h2:
        raise AssertionError(f"sdpa_flop_count: query heads ({h}) must be a multiple of key/value heads ({h2})")
    return 2 * b * h * s * t * (d + e)


_SDPA = ("_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention", "_scaled_dot_product_cudnn_attention")


@register_flop_formula(_aten(*_SDPA))
def sdpa_flop(query_shape, key_shape, value_shape, *args, out_shape=None, **kwargs):
    """FLOPs of attention, from the op's arguments."""
    return sdpa_flop_count(query_shape, key_shape, value_shape)


def sdpa_backward_flop_count(grad_out_shape, query_shape, key_shape, value_shape):
    """FLOPs of attention's gradients: recomputes the scores, then two products for each product of
    the forward."""
    (b, h, s, d), (b2, h2, t, d2), (b3, h3, t2, e), (b4, h4, s2, e2) = query_shape, key_shape, value_shape, grad_out_shape
    if not (b == b2 == b3 == b4 and h2 == h3 and h == h4 and d == d2 and e == e2 and t == t2 and s == s2) or h < h2 or h % h2:
        raise AssertionError(f"sdpa_backward_flop_count: shapes are incompatible: q={query_shape}, k={key_shape}, v={value_shape}, grad_out={grad_out_shape}")
    return 2 * b * h * s * t * (3 * d + 2 * e)


@register_flop_formula(_aten(*[n + "_backward" for n in _SDPA]))
def sdpa_backward_flop(grad_out_shape, query_shape, key_shape, value_shape, *args, out_shape=None, **kwargs):
    """FLOPs of attention's gradients, from the op's arguments."""
    return sdpa_backward_flop_count(grad_out_shape, query_shape, key_shape, value_shape)


# ------------------------------------------------------------------ tables
suffixes = ["", "K", "M", "B", "T"]


def get_suffix_str(number):
    """Returns the suffix for a count such that at most four digits precede the decimal point."""
    return suffixes[min(len(suffixes) - 1, max(0, (len(str(number)) - 2) // 3))]


def convert_num_with_suffix(number, suffix):
    """Formats a count in units of a suffix."""
    return f"{number / 1000 ** suffixes.index(suffix):.3f}{suffix}"


def convert_to_percent_str(num, denom):
    """Formats a ratio as a percentage."""
    return f"{num / denom:.2%}" if denom else "0%"


class FlopCounterMode:
    """Context manager that counts FLOPs.

    Args:
        mods: not needed.
        depth: number of module levels in the table.
        display: prints the table at the end.
        custom_mapping: formulas for additional ops (or replacements for known ones), over
            shapes unless registered with get_raw.
    """

    def __init__(self, mods=None, depth=2, display=True, custom_mapping=None):
        if mods is not None:
            warnings.warn("mods argument is not needed anymore, you can stop passing it", stacklevel=2)
        self.flop_counts = defaultdict(lambda: defaultdict(int))
        self.depth, self.display, self.mode = depth, display, None
        self.flop_registry = {**flop_registry, **{k: v if getattr(v, "_get_raw", False) else shape_wrapper(v) for k, v in (custom_mapping or {}).items()}}
        self.mod_tracker = ModuleTracker()

    def get_total_flops(self):
        """Returns the total count."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self):
        """Returns {module name: {op: count}}; "Global" holds the totals."""
        return {k: dict(v) for k, v in self.flop_counts.items()}

    def get_table(self, depth=None):
        """Formats the counts as a table with the package tabulate, for `depth` levels of modules.
        """
        import tabulate
        depth = depth or self.depth or 999999
        tabulate.PRESERVE_WHITESPACE = True
        total = self.get_total_flops()
        suffix = get_suffix_str(total)

        def rows(name, level):
            counts = self.flop_counts[name]
            lines = [(name, sum(counts.values())), *[(f" - {op}", n) for op, n in counts.items()]]
            return [[" " * level + text, convert_num_with_suffix(n, suffix), convert_to_percent_str(n, total)] for text, n in lines]

        shown = [name for name in sorted(self.flop_counts) if name != "Global" and name.count(".") + 1 <= depth]
        table = [row for name in shown for row in rows(name, name.count("."))]
        if "Global" in self.flop_counts and not any([sum(self.flop_counts[name].values()) >= total for name in shown]):
            table = rows("Global", 0) + [[" " + text, *rest] for text, *rest in table]
        return tabulate.tabulate(table or [["Global", "0", "0%"]], headers=["Module", "FLOP", "% Total"], colalign=("left", "right", "right"))

    def __enter__(self):
        self.flop_counts.clear()
        self.mod_tracker.__enter__()
        self.mode = _FlopCounterMode(self)
        self.mode.__enter__()
        return self

    def __exit__(self, *exc):
        mode, self.mode = self.mode, None
        mode.__exit__(*exc)
        self.mod_tracker.__exit__(*exc)
        if self.display:
            print(self.get_table(self.depth))

    def _count_flops(self, func_packet, out, args, kwargs):
        formula = self.flop_registry.get(func_packet)
        if formula is not None:
            n = formula(*args, **kwargs, out_val=out)
            for name in self.mod_tracker.parents:
                self.flop_counts[name][func_packet] += n
        return out


class _FlopCounterMode(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, counter):
        super().__init__()
        self.counter = counter

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if isinstance(func, _higher_order()):
            return self._branches(*args) if func.name() == "cond" else NotImplemented
        return self.counter._count_flops(func._overloadpacket, func(*args, **kwargs), args, kwargs)

    def _branches(self, pred, true_fn, false_fn, operands):
        """Counts both branches of torch.cond and uses the larger count of each op."""
        counter, before = self.counter, self.counter.flop_counts
        found = []
        try:
            for fn in (true_fn, false_fn):
                counter.flop_counts = defaultdict(lambda: defaultdict(int))
                with self:
                    found.append((fn(*operands), counter.flop_counts))
        finally:
            counter.flop_counts = before
        (yes, a), (no, b) = found
        for name in {**a, **b}:
            for op in {**a[name], **b[name]}:
                before[name][op] += max(a[name][op], b[name][op])
        return yes if bool(pred) else no
