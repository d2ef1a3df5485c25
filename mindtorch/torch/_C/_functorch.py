"""torch._C._functorch: what asks about transforms and levels.

Transforms that differentiate run on plain tensors here, which a number marks (core/transforms.py); in a vmap a tensor stands for the slices of another one
(core/batching.py).
"""
import contextlib
import enum

from mindtorch.core import batching, transforms
from mindtorch.torch.func import _vmap as vmap
from mindtorch.torch._refusing import refuse

TransformType = enum.Enum("TransformType", ["Torch", "Vmap", "Grad", "Jvp", "Functionalize"], module="mindtorch.torch._C._functorch")
RandomnessType = enum.Enum("RandomnessType", ["Error", "Same", "Different"], module="mindtorch.torch._C._functorch")
_TYPES = {"grad": TransformType.Grad, "jvp": TransformType.Jvp, "vmap": TransformType.Vmap, "functionalize": TransformType.Functionalize}


class CInterpreter:
    """A transform under way, for operators that bring rules of their own."""

    def __init__(self, number, level):
        self._number, self._level = number, level

    def key(self):
        """Its kind."""
        return _TYPES[self._level.kind]

    def level(self):
        """Its number, from 1 for the outermost."""
        return self._number

    def batchSize(self):
        """How many slices a vmap has."""
        return self._level.size

    def randomness(self):
        """What random operations may do in a vmap."""
        return RandomnessType[self._level.randomness.capitalize()]

    @contextlib.contextmanager
    def lower(self):
        """Inside, the next transform outwards is the innermost one."""
        with transforms.below(self._level):
            yield


CGradInterpreterPtr = CVmapInterpreterPtr = CJvpInterpreterPtr = CFunctionalizeInterpreterPtr = CInterpreter


def get_interpreter_stack():
    """The transforms that this thread is in, outermost first; None outside of any."""
    return [CInterpreter(i + 1, level) for i, level in enumerate(transforms.levels())] or None


def peek_interpreter_stack():
    """The innermost transform that this thread is in; None outside of any."""
    stack = get_interpreter_stack()
    return stack[-1] if stack else None


def maybe_current_level():
    """The number of the innermost transform; None outside of any."""
    return len(transforms.levels()) or None


def get_dynamic_layer_stack_depth():
    """How many transforms this thread is in."""
    return len(transforms.levels())


def current_level():
    """The number of the innermost transform; RuntimeError outside of any."""
    n = len(transforms.levels())
    if not n:
        raise RuntimeError("there is no transform under way")
    return n


def _innermost(tensor):
    found = transforms.shown_in(tensor)
    return found[0] if found else None


def is_gradtrackingtensor(tensor):
    """Whether the innermost transform that a tensor was made in differentiates."""
    found = _innermost(tensor)
    return found is not None and found[1].kind in ("grad", "jvp")


def is_functionaltensor(tensor):
    """Whether the innermost transform that a tensor was made in is functionalize."""
    found = _innermost(tensor)
    return found is not None and found[1].kind == "functionalize"


def is_batchedtensor(tensor):
    """Whether a tensor stands for the slices of a vmap, and no transform inside of that one has it."""
    level = batching.level_of(tensor)
    found = _innermost(tensor)
    return level is not None and (found is None or found[1].kind == "vmap")


is_legacy_batchedtensor = is_batchedtensor


def is_functorch_wrapped_tensor(tensor):
    """Whether a tensor was made in a transform that differentiates or functionalizes, or stands for the slices of a vmap."""
    return is_gradtrackingtensor(tensor) or is_functionaltensor(tensor) or is_batchedtensor(tensor)


def maybe_get_level(tensor):
    """The number of the transform a tensor was made in; -1: of none, -2: of one that is over."""
    n = transforms.level_number(tensor)
    return -1 if n == 0 else -2 if n == -1 else n


def dlevel(tensor):
    """The same; 0: of none, -1: of one that is over."""
    return transforms.level_number(tensor)


def is_dead_tensor_wrapper(tensor):
    """Whether a tensor was made in a transform that is over, and did not leave it as a result."""
    return transforms.level_number(tensor) == -1


def get_unwrapped(tensor):
    """The tensor of all slices that it stands for; the tensor itself where it stands for none."""
    return tensor._h.value if is_batchedtensor(tensor) else tensor


def unwrap_if_dead(tensor):
    """The tensor itself: none is wrapped."""
    return tensor


def _wrap_for_grad(tensor, level):
    """The tensor itself: its history serves all levels."""
    return tensor


_unwrap_for_grad = _wrap_for_grad


def maybe_get_bdim(tensor):
    """The dimension of the tensor of all slices along which they are (always the first); -1: it has none."""
    return 0 if is_batchedtensor(tensor) and tensor._h.mapped else -1


def _unwrap_batched(tensor, level):
    """(the tensor of all slices, their dimension) in the vmap of a number; (the tensor, None) where it stands for none there."""
    value, mapped = batching.taken_out(tensor, transforms.numbered(level))
    return value, 0 if mapped else None


def _add_batch_dim(tensor, batch_dim, level):
    """What stands for the slices of a tensor along a dimension in the vmap of a number."""
    return vmap._add_batch_dim(tensor, batch_dim, level)


def _remove_batch_dim(tensor, level, batch_size, out_dim):
    """The tensor of all slices, these along a dimension; what is the same for all is repeated."""
    return vmap._remove_batch_dim(tensor, level, batch_size, out_dim)


def _vmap_increment_nesting(batch_size, randomness):
    """Begins a vmap ("error", "same" or "different" random numbers); its number."""
    batching.Level(int(batch_size), randomness).__enter__()
    return len(transforms.levels())


def _vmap_decrement_nesting():
    """Ends the innermost transform, which has to be a vmap; the number that it had."""
    now = transforms.levels()
    if not now or now[-1].kind != "vmap":
        raise RuntimeError("the innermost transform is no vmap")
    now[-1].__exit__()
    return len(now)


refuse(globals(), "transforms here run on plain tensors", "_grad_increment_nesting _grad_decrement_nesting _jvp_increment_nesting _jvp_decrement_nesting _func_increment_nesting _func_decrement_nesting "
       "push_dynamic_layer_stack pop_dynamic_layer_stack pop_dynamic_layer_stack_and_undo_to_depth _wrap_functional_tensor _unwrap_functional_tensor", "")
