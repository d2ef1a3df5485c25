"""Placeholders for unsupported names: importable, but they raise NotImplementedError when used."""


def _qualify(scope, name):
    return f"{scope['__name__'].removeprefix('mindtorch.')}.{name}"


def refuse(scope, reason, functions="", classes=""):
    """Adds functions and classes to a module's globals that raise NotImplementedError with `reason`
    when called.

    Names that the module already defines are left alone. The classes can be subclassed and passed
    to isinstance.
    """
    for name in functions.split():
        scope.setdefault(name, _function(_qualify(scope, name), name, reason, scope["__name__"]))
    for name in classes.split():
        scope.setdefault(name, _class(_qualify(scope, name), name, reason, scope["__name__"]))


def _function(qualified, name, reason, module):
    def fn(*args, **kwargs):
        raise NotImplementedError(f"{qualified} is not supported: {reason}")
    fn.__name__ = fn.__qualname__ = name
    fn.__module__ = module
    fn.__doc__ = f"Not supported: {reason}."
    return fn


def _class(qualified, name, reason, module):
    def __new__(cls, *args, **kwargs):
        raise NotImplementedError(f"{qualified} is not supported: {reason}")
    return type(name, (), {"__new__": __new__, "__module__": module, "__doc__": f"Not supported: {reason}."})
