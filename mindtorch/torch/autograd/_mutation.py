"""In-place writes to tensors saved for backward: a saved tensor is copied before the first write to
its memory."""
import threading
import weakref

from mindtorch.core.dispatch import dispatcher
from mindtorch.core.autograd import graph as autograd_graph
from mindtorch.core.autograd.grad_mode import no_grad
from mindtorch.core.tensor.tensor import detached, is_tensor, version_counter
from mindtorch.core.compile.tracing import writes_first


class _Here(threading.local):
    context = None


_here = _Here()


class _Handle:
    """Handle that an autograd node stores instead of the saved tensor."""

    __slots__ = ("at", "__weakref__")

    def __init__(self, at):
        self.at = at  # the memory's version when the tensor was saved


class AllowMutationOnSavedContext:
    """Saved tensors of one context. `original`: tensors as saved; `cloned`: copies of those whose
    memory was modified since."""

    def __init__(self):
        self.original, self.cloned = weakref.WeakKeyDictionary(), weakref.WeakKeyDictionary()
        # (id of the tensor's array, version) -> handle
        self.tid_to_weakhandle = weakref.WeakValueDictionary()
        self.written = None  # version counter of the memory that is about to be modified
        # version counter -> handles of saved tensors on that memory
        self.on = weakref.WeakKeyDictionary()

    def pack(self, t):
        v = version_counter(t)
        if v is self.written:
            # an in-place op owns the copy it saves of its own input; nothing else aliases it
            handle = _Handle(v.v)
            with no_grad():
                self.original[handle] = t.clone()
            return handle
        tid = id(t._array), v.v
        handle = self.tid_to_weakhandle.get(tid)
        if handle is None:
            handle = self.tid_to_weakhandle[tid] = _Handle(v.v)
            # detached: with its history, the tensor would keep alive the node that stores it
            self.original[handle] = detached(t)
            self.on.setdefault(v, weakref.WeakSet()).add(handle)
        return handle

    def unpack(self, handle):
        if _here.context is not self or handle not in self.original and handle not in self.cloned:
            raise AssertionError("Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was recorded")
        return self.cloned[handle] if handle in self.cloned else self.original[handle]

    def before_write(self, t):
        """Copies the tensors saved on the memory of `t`."""
        v = t._version_counter
        if v is None or v not in self.on:
            return
        for handle in list(self.on[v]):
            if handle.at == v.v and handle not in self.cloned and handle in self.original:
                with no_grad():
                    self.cloned[handle] = self.original.pop(handle).clone()

    def clear(self):
        """Drops all saved tensors: the graphs recorded in this context cannot be differentiated any
        more."""
        for d in (self.original, self.cloned, self.tid_to_weakhandle, self.on):
            d.clear()


def _tensors(x):
    if isinstance(x, (list, tuple)):
        for y in x:
            yield from _tensors(y)
    elif is_tensor(x):
        yield x


@dispatcher.register_layer("ops", "saves")
def _look(entry, args, kwargs, below):
    context = _here.context
    if context is not None:
        written = []
        if args and writes_first(entry):
            written.append(args[0])
        if kwargs and kwargs.get("out") is not None:
            written.append(kwargs["out"])
        if written:
            outer = context.written
            for t in _tensors(written):
                context.before_write(t)
                context.written = t._version_counter
            try:
                return below(entry, args, kwargs)
            finally:
                context.written = outer
    return below(entry, args, kwargs)


class allow_mutation_on_saved_tensors:
    """Context manager: see torch.autograd.graph."""

    def __enter__(self):
        if _here.context is not None:
            raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
        self.context = context = AllowMutationOnSavedContext()
        autograd_graph.push_saved_hooks(context.pack, context.unpack)
        dispatcher.enable_layer("ops", "saves")
        _here.context = context
        return context

    def __exit__(self, *exc):
        _here.context = None
        dispatcher.disable_layer("ops", "saves")
        autograd_graph.pop_saved_hooks()
        self.context.clear()
