"""Warnings for names that PyTorch keeps for backward compatibility."""
import functools
import warnings

#: how torch.compile handles the functions of this module (see
#: `mindtorch/torch/_dynamo/_capture.py`)
CAPTURE = "followed"


def deprecated(message, category=FutureWarning):
    """Decorator: calling the function emits the warning. `__deprecated__` holds the message."""
    def mark(fn):
        @functools.wraps(fn)
        def warning(*args, **kwargs):
            warnings.warn(message, category=category, stacklevel=2)
            return fn(*args, **kwargs)
        warning.__deprecated__ = fn.__deprecated__ = message
        return warning
    return mark


def deprecated_class(message, category=FutureWarning):
    """Decorator: creating an instance of the class emits the warning, and so does deriving a class
    from it."""
    def mark(cls):
        def __new__(made, *args, **kwargs):
            if made is cls:
                warnings.warn(message, category=category, stacklevel=2)
            return object.__new__(made)

        def __init_subclass__(derived, **kwargs):
            warnings.warn(message, category=category, stacklevel=2)
            super(cls, derived).__init_subclass__(**kwargs)
        __new__.__wrapped__ = cls.__init__  # inspect.signature reads `__new__` first
        cls.__new__, cls.__init_subclass__, cls.__deprecated__ = __new__, classmethod(__init_subclass__), message
        return cls
    return mark
