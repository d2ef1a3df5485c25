"""torch.fx._compatibility: marks of how stable an interface is."""


def compatibility(is_backward_compatible):
    """Decorator that notes whether a function is a stable interface."""
    def mark(fn):
        fn.__backwards_compatible__ = is_backward_compatible
        return fn
    return mark
