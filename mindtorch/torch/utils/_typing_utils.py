"""torch.utils._typing_utils."""


def not_none(obj):
    """Returns the object; raises TypeError if it is None."""
    if obj is None:
        raise TypeError("Invariant encountered: value was None when it should not be")
    return obj
