"""Context managers that also work as decorators; libraries derive their own from them."""
import functools
import inspect
import warnings

from mindtorch.core.autograd.grad_mode import GradMode

__all__ = []


def context_decorator(ctx, func):
    """Wraps `func` so that every call runs inside a context.

    `ctx()` creates the context of a call; if `ctx` is a context manager, it is reused for every
    call.
    """
    if callable(ctx) and hasattr(ctx, "__enter__"):
        raise AssertionError(f"Passed in {ctx} is both callable and also a valid context manager (has __enter__), making it ambiguous which "
                             "interface to use.  If you intended to pass a context manager factory, rewrite your call as "
                             "context_decorator(lambda: ctx()); if you intended to pass a context manager directly, rewrite your call as "
                             "context_decorator(lambda: ctx)")
    make = ctx if callable(ctx) else lambda: ctx
    if inspect.isclass(func):
        raise RuntimeError("Cannot decorate classes; it is ambiguous whether or not only the constructor or all methods should have the "
                           "context manager applied; additionally, decorating a class at definition-site will prevent use of the identifier "
                           "as a conventional type.  To specify which methods to decorate, decorate each of them individually.")
    if inspect.isgeneratorfunction(func):
        switch = _DecoratorContextManager()
        switch.clone = make
        return GradMode.__call__(switch, func)

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        with make():
            return func(*args, **kwargs)
    return wrapper


class _DecoratorContextManager(GradMode):
    """Context manager that can decorate functions and generators; `clone` creates the context of a
    call."""

    def __call__(self, orig_func):
        if inspect.isclass(orig_func):
            warnings.warn(f"decorating a class with {type(self).__name__} wraps only its constructor and replaces the class by a function; "
                          "decorate its methods instead", FutureWarning, stacklevel=2)
            return super().__call__(lambda *args, **kwargs: orig_func(*args, **kwargs))
        return super().__call__(orig_func)

    def __enter__(self):
        raise NotImplementedError

    def __exit__(self, exc_type, exc_value, traceback):
        raise NotImplementedError

    def clone(self):
        return type(self)()

    def _clone(self):
        return self.clone()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """Context manager without parameters, which can be used as a decorator without parentheses."""

    def __new__(cls, orig_func=None):
        self = super().__new__(cls)
        return self if orig_func is None else self(orig_func)
