"""Dictionaries and references that hold objects weakly and compare them by identity instead of
`==`."""
import weakref
from collections.abc import MutableMapping

from mindtorch.core.tensor.tensor import is_tensor

__all__ = ["TensorWeakRef", "WeakIdRef", "WeakIdKeyDictionary", "WeakTensorKeyDictionary"]


class WeakIdRef(weakref.ref):
    """Weak reference that hashes to the id of its object and equals another reference to the same
    object."""

    __slots__ = ("_id",)

    def __init__(self, key, callback=None):
        super().__init__(key, callback)
        self._id = id(key)

    def __call__(self):
        return super().__call__()

    def __hash__(self):
        return self._id

    def __eq__(self, other):
        mine, theirs = self(), other() if isinstance(other, weakref.ref) else None
        if mine is None or theirs is None:
            return self is other  # an id may be reused once its object is deleted
        return mine is theirs

    def __ne__(self, other):
        return not self == other


#: PyTorch keeps the Python object of a tensor alive separately from the tensor. Here they are the
#: same object, so one kind of reference suffices.
WeakTensorRefKey = WeakIdRef


class WeakIdKeyDictionary(MutableMapping):
    """Dict whose keys are held weakly and compared by identity.

    Args:
        dict: initial content, a mapping or None.
        ref_type: class of the references to the keys.
    """

    def __init__(self, dict=None, ref_type=WeakIdRef):
        self.data, self.ref_type = {}, ref_type
        mine = weakref.ref(self)

        def gone(reference):
            owner = mine()
            if owner is not None:
                owner.data.pop(reference, None)
        self._gone = gone
        if dict is not None:
            self.update(dict)

    def _ref(self, key):
        return self.ref_type(key, self._gone)

    def __getitem__(self, key):
        return self.data[self.ref_type(key)]

    def __setitem__(self, key, value):
        self.data[self._ref(key)] = value

    def __delitem__(self, key):
        del self.data[self.ref_type(key)]

    def __contains__(self, key):
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # an object that does not support weak references
            return False

    def __iter__(self):
        for reference in list(self.data):
            key = reference()
            if key is not None:
                yield key

    def __len__(self):
        return len(self.data)

    def __repr__(self):
        return f"<{type(self).__name__} at {id(self):#x}>"

    def __eq__(self, other):
        if not isinstance(other, (MutableMapping, dict)):
            return NotImplemented
        return {id(k): v for k, v in self.items()} == {id(k): v for k, v in other.items()}

    def keyrefs(self):
        """Returns the references to the keys."""
        return list(self.data)

    def copy(self):
        """Returns a new dictionary with the same keys and values."""
        new = WeakIdKeyDictionary(ref_type=self.ref_type)
        new.update(self)
        return new

    __copy__ = copy

    def __deepcopy__(self, memo):
        from copy import deepcopy
        new = type(self)()
        for key, value in self.items():
            new[key] = deepcopy(value, memo)
        return new

    def __or__(self, other):
        new = self.copy()
        new.update(other)
        return new

    def __ior__(self, other):
        self.update(other)
        return self


class WeakTensorKeyDictionary(WeakIdKeyDictionary):
    """WeakIdKeyDictionary for tensors, whose `==` is elementwise."""

    def __init__(self, dict=None, ref_type=WeakTensorRefKey):
        super().__init__(dict, ref_type)


class TensorWeakRef:
    """Weak reference to a tensor; calling it returns the tensor, or None if the tensor no longer
    exists."""

    def __init__(self, tensor):
        if not is_tensor(tensor):
            raise AssertionError(f"expected torch.Tensor, got {type(tensor)}.")
        self.ref = weakref.ref(tensor)

    def __call__(self):
        return self.ref()
