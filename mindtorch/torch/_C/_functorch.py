"""torch._C._functorch: queries about functorch transforms and levels.

Transforms that differentiate run on plain tensors tagged with a level number
(`mindtorch/core/transforms/functorch_levels.py`). Inside vmap, a batched tensor represents the slices of another
tensor (`mindtorch/core/transforms/vmap.py`).
"""
import contextlib
import enum

from mindtorch.core.transforms import vmap as batching, functorch_levels
from mindtorch.torch.func import _vmap as vmap
from mindtorch.torch._refusing import refuse

TransformType = enum.Enum("TransformType", ["Torch", "Vmap", "Grad", "Jvp", "Functionalize"], module="mindtorch.torch._C._functorch")
RandomnessType = enum.Enum("RandomnessType", ["Error", "Same", "Different"], module="mindtorch.torch._C._functorch")
_TYPES = {"grad": TransformType.Grad, "jvp": TransformType.Jvp, "vmap": TransformType.Vmap, "functionalize": TransformType.Functionalize}


class CInterpreter:
    """An active transform, for operators that register their own rules."""

    def __init__(self, number, level):
        self._number, self._level = number, level

    def key(self):
        """Returns its `TransformType`."""
        return _TYPES[self._level.kind]

    def level(self):
        """Returns its level, counted from 1 for the outermost transform."""
        return self._number

    def batchSize(self):
        """Returns the number of slices of a vmap."""
        return self._level.size

    def randomness(self):
        """Returns the randomness mode of a vmap."""
        return RandomnessType[self._level.randomness.capitalize()]

    @contextlib.contextmanager
    def lower(self):
        """Context manager: inside, the next outer transform is the innermost one."""
        with functorch_levels.below(self._level):
            yield


CGradInterpreterPtr = CVmapInterpreterPtr = CJvpInterpreterPtr = CFunctionalizeInterpreterPtr = CInterpreter


def get_interpreter_stack():
    """Returns this thread's active transforms, outermost first; None if there are none."""
    return [CInterpreter(i + 1, level) for i, level in enumerate(functorch_levels.levels())] or None


def peek_interpreter_stack():
    """Returns this thread's innermost active transform; None if there is none."""
    stack = get_interpreter_stack()
    return stack[-1] if stack else None


def maybe_current_level():
    """Returns the level of the innermost transform; None if there is none."""
    return len(functorch_levels.levels()) or None


def get_dynamic_layer_stack_depth():
    """Returns the number of active transforms of this thread."""
    return len(functorch_levels.levels())


def current_level():
    """Returns the level of the innermost transform. RuntimeError if there is none."""
    n = len(functorch_levels.levels())
    if not n:
        raise RuntimeError("no functorch transform is active")
    return n


def _innermost(tensor):
    found = functorch_levels.creation_levels(tensor)
    return found[0] if found else None


def is_gradtrackingtensor(tensor):
    """True if the innermost transform that a tensor was made in differentiates."""
    found = _innermost(tensor)
    return found is not None and found[1].kind in ("grad", "jvp")


def is_functionaltensor(tensor):
    """True if the innermost transform that a tensor was made in is functionalize."""
    found = _innermost(tensor)
    return found is not None and found[1].kind == "functionalize"


def is_batchedtensor(tensor):
    """True if a tensor represents the slices of a vmap and belongs to no transform nested inside
    that vmap."""
    level = batching.level_of(tensor)
    found = _innermost(tensor)
    return level is not None and (found is None or found[1].kind == "vmap")


is_legacy_batchedtensor = is_batchedtensor


def is_functorch_wrapped_tensor(tensor):
    """True if a tensor was made in a transform that differentiates or functionalizes, or represents
    the slices of a vmap."""
    return is_gradtrackingtensor(tensor) or is_functionaltensor(tensor) or is_batchedtensor(tensor)


def maybe_get_level(tensor):
    """Returns the level that a tensor was made in; -1 for none, -2 if that level has ended."""
    n = functorch_levels.level_number(tensor)
    return -1 if n == 0 else -2 if n == -1 else n


def dlevel(tensor):
    """Like `maybe_get_level`, but 0 for none and -1 if that level has ended."""
    return functorch_levels.level_number(tensor)


def is_dead_tensor_wrapper(tensor):
    """True if a tensor was made in a transform that has ended and was not returned as its result.
    """
    return functorch_levels.level_number(tensor) == -1


def get_unwrapped(tensor):
    """Returns the tensor of all slices for a batched tensor; any other tensor is returned
    unchanged."""
    return tensor._handle.value if is_batchedtensor(tensor) else tensor


def unwrap_if_dead(tensor):
    """Returns the tensor itself: tensors are never wrapped here."""
    return tensor


def _wrap_for_grad(tensor, level):
    """Returns the tensor itself: one autograd graph serves all levels."""
    return tensor


_unwrap_for_grad = _wrap_for_grad


def maybe_get_bdim(tensor):
    """Returns the batch dimension of a batched tensor, which is always 0; -1 for other tensors."""
    return 0 if is_batchedtensor(tensor) and tensor._handle.mapped else -1


def _unwrap_batched(tensor, level):
    """Returns (tensor of all slices, batch dimension) for the vmap at `level`.

    (tensor, None) if the tensor is not batched at that level.
    """
    value, mapped = batching.remove_batch_dim(tensor, functorch_levels.numbered(level))
    return value, 0 if mapped else None


def _add_batch_dim(tensor, batch_dim, level):
    """Returns a batched tensor over the slices of `tensor` along batch_dim, for the vmap at
    `level`."""
    return vmap._add_batch_dim(tensor, batch_dim, level)


def _remove_batch_dim(tensor, level, batch_size, out_dim):
    """Returns the tensor of all slices, with the batch dimension at out_dim. An unbatched value is
    repeated for every slice."""
    return vmap._remove_batch_dim(tensor, level, batch_size, out_dim)


def _vmap_increment_nesting(batch_size, randomness):
    """Starts a vmap (randomness "error", "same" or "different") and returns its level."""
    batching.VmapLevel(int(batch_size), randomness).__enter__()
    return len(functorch_levels.levels())


def _vmap_decrement_nesting():
    """Ends the innermost transform, which must be a vmap, and returns its level."""
    now = functorch_levels.levels()
    if not now or now[-1].kind != "vmap":
        raise RuntimeError("the innermost transform is not a vmap")
    now[-1].__exit__()
    return len(now)


refuse(globals(), "transforms here run on plain tensors", "_grad_increment_nesting _grad_decrement_nesting _jvp_increment_nesting _jvp_decrement_nesting _func_increment_nesting _func_decrement_nesting "
       "push_dynamic_layer_stack pop_dynamic_layer_stack pop_dynamic_layer_stack_and_undo_to_depth _wrap_functional_tensor _unwrap_functional_tensor", "")
