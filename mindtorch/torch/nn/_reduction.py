"""The deprecated `size_average` and `reduce` arguments of loss functions."""
import warnings

__all__ = ["get_enum", "legacy_get_string", "legacy_get_enum"]

_ENUM = {"none": 0, "mean": 1, "elementwise_mean": 1, "sum": 2}


def get_enum(reduction):
    """Returns the integer code of a reduction in PyTorch. ValueError for an unknown reduction."""
    if reduction == "elementwise_mean":
        warnings.warn("reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.", stacklevel=2)
    if reduction not in _ENUM:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return _ENUM[reduction]


def legacy_get_string(size_average, reduce, emit_warning=True):
    """Returns the reduction that `size_average` and `reduce` (None: True) specify."""
    size_average = True if size_average is None else size_average
    reduce = True if reduce is None else reduce
    reduction = "none" if not reduce else "mean" if size_average else "sum"
    if emit_warning:
        warnings.warn("size_average and reduce args will be deprecated, please use "
                      f"reduction='{reduction}' instead.", stacklevel=3)
    return reduction


def legacy_get_enum(size_average, reduce, emit_warning=True):
    """Like `legacy_get_string`, as an integer code."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
