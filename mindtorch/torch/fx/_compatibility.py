"""torch.fx._compatibility: markers for the stability of an interface."""


def compatibility(is_backward_compatible):
    """Decorator that marks whether a function is a stable interface."""
    def mark(fn):
        fn.__backwards_compatible__ = is_backward_compatible
        return fn
    return mark
