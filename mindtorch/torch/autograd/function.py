"""torch.autograd.Function: custom operations with hand-written gradients."""
import functools
import warnings

from mindtorch.core import tape
from mindtorch.core.grad_mode import mode, no_grad
from mindtorch.core.native import link, native_recording
from mindtorch.core.tape import Node, new_node
from mindtorch.core.tensor import Version, again, detached, register_view, version, taken

__all__ = ["FunctionCtx", "Function", "once_differentiable", "InplaceFunction", "NestedIOFunction", "BackwardCFunction"]


class FunctionCtx:
    """What forward leaves for backward."""

    def save_for_backward(self, *tensors):
        """Keeps tensors for backward; a later in-place write to one of them is an error there."""
        for t in tensors:
            if t is not None and not taken(t):
                raise TypeError(f"save_for_backward can only save variables, but argument is of type {type(t).__name__}")
        self._to_save = tensors

    def save_for_forward(self, *tensors):
        """Accepted; forward-mode differentiation is not supported."""

    def mark_dirty(self, *args):
        """Inputs that forward changed in place."""
        self._dirty = args

    def mark_non_differentiable(self, *args):
        """Outputs without a gradient."""
        self._nondiff = args

    def set_materialize_grads(self, value):
        """False: missing output gradients come as None rather than as zeros."""
        self._materialize = value


class BackwardCFunction(Node, FunctionCtx):
    """grad_fn of a custom Function; it is the `ctx` of its methods."""

    __slots__ = ("__dict__",)

    @property
    def saved_tensors(self):
        """The tensors given to save_for_backward."""
        if self.freed:
            raise RuntimeError("Trying to backward through the graph a second time (or directly access saved tensors after they "
                               "have already been freed). Saved intermediate values of the graph are freed when you call "
                               ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
                               "graph a second time or if you need to access saved tensors after calling backward.")
        vals = self.vals
        if vals is None:
            return tuple(getattr(self, "_to_save", ()))
        return tuple(None if s is None else tape._unpack(self, s, str(i)) for i, s in enumerate(vals.values()))

    @property
    def saved_variables(self):
        return self.saved_tensors

    @property
    def needs_input_grad(self):
        return self._needs

    def _apply(self, gs):
        if getattr(self, "_materialize", True):
            gs = [tape._zeros(m, gs) if g is None and m is not None else g for g, m in zip(gs, self._out_meta)]
        fn = type(self)._function
        if fn.backward is Function.backward:
            backward = fn.vjp
        elif fn.vjp is Function.vjp:
            backward = fn.backward
        else:
            raise RuntimeError("Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement one "
                               "of them.")
        res = backward(self, *gs)
        if not isinstance(res, tuple):
            res = tuple(res) if isinstance(res, list) else (res,)
        n = len(self._needs)
        if len(res) > n:
            if any(r is not None for r in res[n:]):
                raise RuntimeError(f"function {self.name()} returned an incorrect number of gradients (expected {n}, got {len(res)})")
            res = res[:n]
        elif len(res) < n:
            raise RuntimeError(f"function {self.name()} returned an incorrect number of gradients (expected {n}, got {len(res)})")
        out = []
        for i, (r, is_tensor) in enumerate(zip(res, self._is_tensor)):
            if not is_tensor:
                if r is not None:
                    raise RuntimeError(f"function {self.name()} returned a gradient different from None at position {i + 1}, but "
                                       "the corresponding forward input was not a Variable")
                continue
            if r is not None and not taken(r):
                raise TypeError(f"expected Variable or None (got {type(r).__name__})")
            out.append(r)
        return out

    def __getattr__(self, name):
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


class _FunctionMeta(type):
    def __init__(cls, name, bases, attrs):
        super().__init__(name, bases, attrs)
        cls._backward_cls = type(name + "Backward", (BackwardCFunction,), {"_function": cls, "__module__": cls.__module__})


class Function(metaclass=_FunctionMeta):
    """Base of custom autograd functions (https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function).

    Subclasses define static methods forward(ctx, *args) (or forward(*args) with setup_context(ctx, inputs, output)) and
    backward(ctx, *grads); they are used through `apply`.
    """

    generate_vmap_rule = False

    def __init__(self, *args, **kwargs):
        warnings.warn(f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should "
                      "invoke them on the class itself. Instantiating an autograd function will raise an error in a future "
                      "version of PyTorch.", DeprecationWarning, stacklevel=2)

    @staticmethod
    def forward(*args, **kwargs):
        """Computes the result."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Saves what backward needs, where forward takes no ctx."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx, *grad_outputs):
        """Computes one gradient per forward argument."""
        raise NotImplementedError("You must implement either the backward or vjp method for your custom autograd.Function to use it "
                                  "with backward mode AD.")

    vjp = backward

    @staticmethod
    def jvp(ctx, *grad_inputs):
        raise NotImplementedError("forward-mode differentiation of custom autograd.Functions is not supported")

    @classmethod
    def apply(cls, *args, **kwargs):
        """Runs forward and records the function."""
        node = new_node(cls._backward_cls)
        node.prim = None
        tensors = [a for a in args if taken(a)]
        record = mode.on and any(t._rg for t in tensors)
        node._needs = tuple(taken(a) and record and a._rg for a in args)
        node._is_tensor = tuple(taken(a) for a in args)
        if kwargs:
            import inspect
            params = list(inspect.signature(cls.forward).parameters)
            names = params if _split(cls) else params[1:]
            args = args + tuple(kwargs[k] for k in names[len(args):] if k in kwargs)
            node._needs += (False,) * (len(args) - len(node._needs))
            node._is_tensor += (False,) * (len(args) - len(node._is_tensor))
        with no_grad():
            if _split(cls):
                out = cls.forward(*args)
                cls.setup_context(node, args, out)
            else:
                out = cls.forward(node, *args)
        single = taken(out) or not isinstance(out, tuple)
        outs = [out] if single else list(out)
        dirty = getattr(node, "_dirty", ())
        for t in dirty:
            if not any(t is o for o in outs):
                raise RuntimeError("Some elements marked as dirty during the forward method were not returned as output. The inputs "
                                   "that are modified inplace must all be outputs of the Function.")
        if not record:
            node.edges, node.meta = [], ()
            return out if not any(o is t for o in outs for t in tensors) else _plain(outs, tensors, dirty, single)
        nondiff = getattr(node, "_nondiff", ())
        node.edges = [(None if not t._rg else (t if t._gnode is None else (t._gnode, t._oi))) for t in tensors]
        to_save = getattr(node, "_to_save", ())
        meta, results = [], []
        for i, o in enumerate(outs):
            if not taken(o):
                meta.append(None)
                results.append(o)
                continue
            meta.append((o._sizes, o._stype))
            if any(o is x for x in nondiff) or o._stype.kind not in "fcV":
                o = detached(o) if any(o is t for t in tensors) else o
                results.append(o)
                continue
            if any(o is d for d in dirty):
                o = _dirty(o, node, i)
            else:
                if any(o is t for t in tensors):
                    # An input returned as it is: a view of it, as in torch.
                    src = o
                    o = again(src)
                    register_view(o, src)
                    o._fragile = None
                elif o._gnode is not None:
                    o = detached(o)
                o._gnode, o._oi, o._rg = node, i, True
            results.append(o)
        node._out_meta = meta
        node.meta = tuple(meta)
        kept = {}
        for i, t in enumerate(to_save):
            if t is None:
                kept[str(i)] = None
                continue
            j = next((j for j, o in enumerate(outs) if o is t), None)
            if j is not None and tape.saved_hooks:
                r = results[j]
                tape._save(str(i), r, kept, j if r._gnode is node else None)
            elif j is not None and not any(t is x for x in tensors):
                r = results[j]
                kept[str(i)] = tape._Out(r, j) if r._rg and r._gnode is node else (r, version(r), version(r).v)
            elif j is not None:
                r = results[j]
                kept[str(i)] = tape._Out(r, j) if r._gnode is node else (t, version(t), version(t).v)
            else:
                tape._save(str(i), t, kept)
        node.vals = kept
        if hasattr(node, "_to_save"):
            del node._to_save
        if native_recording():
            link(node, tuple(results), tensors)
        return results[0] if single else tuple(results)


def _split(cls):
    return cls.setup_context is not Function.setup_context


def _plain(outs, tensors, dirty, single):
    res = [detached(o) if taken(o) and any(o is t for t in tensors) and not any(o is d for d in dirty) else o
           for o in outs]
    return res[0] if single else tuple(res)


def _dirty(x, node, i):
    from mindtorch.core import alias
    if x._gnode is None and x._rg:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    if native_recording():
        raise NotImplementedError("autograd.Function that writes to its input in place (mark_dirty) inside MindSpore's "
                                  f"value_and_grad (dtype {x.dtype}, device {x.device}); use backward() or an out-of-place "
                                  "function")
    r = again(x)
    r._gnode, r._oi, r._rg = node, i, True
    if x._ver is None:
        x._ver = Version()
    r._ver = x._ver
    node.meta = ((x._sizes, x._stype),) * (i + 1)
    alias.rebase(x, r)
    return x


def once_differentiable(fn):
    """Marks a backward that cannot be differentiated again; doing so raises RuntimeError."""
    @functools.wraps(fn)
    def wrapper(ctx, *args):
        with no_grad():
            res = fn(ctx, *args)
        if not mode.on or not any(taken(a) and a._rg for a in args):
            return res
        outs = res if isinstance(res, tuple) else (res,)
        marked = tuple(_Once.apply(o, *[a for a in args if taken(a)]) if taken(o) else o for o in outs)
        return marked if isinstance(res, tuple) else marked[0]
    return wrapper


class _Once(Function):
    @staticmethod
    def forward(ctx, x, *deps):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


class InplaceFunction(Function):
    """Function with an `inplace` flag."""


class NestedIOFunction(Function):
    """Old style nested in- and outputs; not supported."""

    @classmethod
    def apply(cls, *args, **kwargs):
        raise NotImplementedError("torch.autograd.function.NestedIOFunction is not supported; use Function")
