"""Operators that take functions, or bring rules of their own for transforms."""
from mindtorch.torch._C import _functorch
from mindtorch.torch._C._more import DispatchKey
from mindtorch.torch._dispatch_protocol import state as protocol
from mindtorch.torch._ops import _tensors as tensors_of, below


class HigherOrderOperator:
    """An operator that takes functions, or brings rules of its own for transforms: a rule for each key, registered by `py_impl`.

    Keys are of torch._C.DispatchKey or torch._C._functorch.TransformType.  A call goes to the rule of the innermost transform, and outside of
    transforms to that of autograd, then of the device.  NotImplementedError where there is none.
    """

    def __init__(self, name, *, cacheable=False):
        if type(self) is HigherOrderOperator:
            raise RuntimeError("Direct instantiation of HigherOrderOperator is not allowed. Please subclass it.")
        self._name = self.__name__ = name
        self._ns, self._cacheable = "higher_order", cacheable
        self.py_kernels, self._passed = {}, set()

    def __repr__(self):
        return self._name

    def name(self):
        """The name it was given."""
        return self._name

    @property
    def namespace(self):
        """"higher_order"."""
        return self._ns

    def cacheable(self):
        """Whether the operator said that it may be kept in caches."""
        return self._cacheable

    def py_impl(self, k):
        """Decorator: the rule for a key; RuntimeError if there is one."""
        def register(fn):
            if k in self.py_kernels:
                raise RuntimeError(f"Trying to override a python impl for {k} on operator {self._name}")
            self.py_kernels[k] = fn
            return fn
        return register

    def has_kernel_for_dispatch_key(self, k):
        """Whether there is a rule for a key."""
        return k in self.py_kernels

    def fallthrough(self, dispatch_key):
        """Calls pass over this key."""
        self._passed.add(dispatch_key)

    def __call__(self, *args, **kwargs):
        modes = protocol.modes
        if modes and getattr(modes[-1], "supports_higher_order_operators", False):
            protocol.modes = modes[:-1]
            try:
                r = modes[-1].__torch_dispatch__(self, (), args, kwargs)
            finally:
                protocol.modes = modes
            if r is not NotImplemented:
                return r
        interpreter = _functorch.peek_interpreter_stack()
        if interpreter is not None:
            rule = self.py_kernels.get(interpreter.key())
            if rule is None:
                raise NotImplementedError(f"There was no rule registered for HigherOrderOperator {self._name} and {interpreter.key()}")
            return rule(interpreter, *args, **kwargs)
        kind = next((t.device.type for t in tensors_of((*args, *kwargs.values()))), "cpu")
        device = _BACKENDS.get(kind, kind.upper())
        tried = [] if below.autograd else [f"Autograd{device}", "Autograd"]
        for name in (*tried, device, "CompositeExplicitAutograd", "CompositeImplicitAutograd"):
            key = DispatchKey.__members__.get(name)
            if key in self.py_kernels and key not in self._passed:
                return self.py_kernels[key](*args, **kwargs)
        raise NotImplementedError(f"There was no rule registered for HigherOrderOperator {self._name} on device {kind}")


_BACKENDS = {"npu": "PrivateUse1", "meta": "Meta"}
