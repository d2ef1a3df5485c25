"""torch._dynamo.backends.registry: compilers of captured graphs, by name.

A compiler is called as compiler(gm, example_inputs), with a torch.fx.GraphModule and the tensors
for its placeholders. It returns a callable that accepts such tensors, returns the graph's results,
and is run from then on.
"""
from mindtorch.torch._compile import BACKENDS, REGISTERED, compile, resolved

__all__ = ["register_backend", "register_debug_backend", "register_experimental_backend", "list_backends", "lookup_backend"]

#: tags of the built-in backends of torch.compile
_OWN = {"eager": ("debug",), "aot_eager": ("debug",)}


def register_backend(compiler_fn=None, name=None, tags=()):
    """Registers a compiler under a name (default: its own name) for torch.compile(backend=...). Can
    be used as a decorator.

    AssertionError if the name is taken.
    """
    if compiler_fn is None:
        return lambda f: register_backend(f, name, tags)
    if not callable(compiler_fn):
        raise AssertionError(f"compiler_fn must be callable, got {type(compiler_fn)}")
    name = name or compiler_fn.__name__
    if name in REGISTERED or name in BACKENDS:
        raise AssertionError(f"duplicate name: {name}")
    REGISTERED[name] = compiler_fn, tuple(tags)
    compiler_fn._tags = tuple(tags)
    return compiler_fn


def register_debug_backend(compiler_fn=None, name=None):
    """register_backend with the tag "debug"."""
    return register_backend(compiler_fn, name, ("debug",))


def register_experimental_backend(compiler_fn=None, name=None):
    """register_backend with the tag "experimental"."""
    return register_backend(compiler_fn, name, ("experimental",))


def list_backends(exclude_tags=("debug", "experimental")):
    """Returns the names that torch.compile accepts, without those that have one of these tags."""
    tags = {**{n: _OWN.get(n, ()) for n in BACKENDS}, **{n: t for n, (_, t) in REGISTERED.items()}}
    return sorted(n for n, have in tags.items() if not set(have) & set(exclude_tags or ()))


def lookup_backend(compiler_fn):
    """Returns the compiler registered under a name. A callable is returned unchanged.

    InvalidBackend if there is none.
    """
    if not isinstance(compiler_fn, str):
        return compiler_fn
    found = resolved(compiler_fn)
    return _own(found) if isinstance(found, str) else found


def _own(name):
    def compiler(gm, example_inputs, **kwargs):
        return gm.forward if name == "eager" else compile(gm.forward, backend=name, **kwargs)
    compiler.__name__ = compiler.__qualname__ = name
    return compiler
