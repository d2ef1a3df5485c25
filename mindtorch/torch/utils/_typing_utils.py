"""torch.utils._typing_utils."""


def not_none(obj):
    """The object; TypeError for None."""
    if obj is None:
        raise TypeError("Invariant encountered: value was None when it should not be")
    return obj
