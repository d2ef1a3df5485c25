"""Operators that accept functions, or register their own rules for transforms."""
from mindtorch.torch._C import _functorch
from mindtorch.torch._C._more import DispatchKey
from mindtorch.torch._dispatch_protocol import state as protocol
from mindtorch.torch._ops import _tensors as tensors_of, below


class HigherOrderOperator:
    """Operator that accepts functions, or registers its own rules for transforms: one rule per key,
    set with `py_impl`.

    Keys are members of torch._C.DispatchKey or torch._C._functorch.TransformType. A call runs the
    rule of the innermost transform. Outside of transforms it runs the autograd rule, or else the
    device's. NotImplementedError if there is no rule.
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
        """Returns the operator's name."""
        return self._name

    @property
    def namespace(self):
        """Always "higher_order"."""
        return self._ns

    def cacheable(self):
        """Returns the `cacheable` flag passed to the constructor."""
        return self._cacheable

    def py_impl(self, k):
        """Decorator that registers the rule for a key. RuntimeError if there is one already."""
        def register(fn):
            if k in self.py_kernels:
                raise RuntimeError(f"Trying to override a python impl for {k} on operator {self._name}")
            self.py_kernels[k] = fn
            return fn
        return register

    def has_kernel_for_dispatch_key(self, k):
        """True if there is a rule for a key."""
        return k in self.py_kernels

    def fallthrough(self, dispatch_key):
        """Makes calls skip this key."""
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
