"""Selective checkpointing: which op results a checkpointed region saves, and which it recomputes
(torch.utils.checkpoint)."""
import enum
from functools import partial

from mindtorch.core.tensor.tensor import detached, is_tensor
from mindtorch.torch import ops
from mindtorch.torch._ops import OpOverload, OpOverloadPacket
from mindtorch.torch.utils._python_dispatch import TorchDispatchMode
from mindtorch.torch.utils._pytree import tree_map


class CheckpointPolicy(enum.Enum):
    """Policy for the result of an op.

    PREFER_ leaves the choice to a compiler and is equivalent to MUST_ here.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


class SelectiveCheckpointContext:
    """Context passed to a policy function; `is_recompute` is True during the recomputation."""

    def __init__(self, *, is_recompute):
        self.is_recompute = is_recompute


#: ops for which no policy is queried
SAC_IGNORED_OPS = {ops.aten.detach.default}
_RECOMPUTE = object()  # marks a result that is to be recomputed


class _Saved:
    """A saved result: the tensor, its version when saved, and the device to move it back to."""

    __slots__ = ("val", "at", "device")

    def __init__(self, t, offload):
        d = detached(t)
        self.device = t.device if offload and t.device.type != "cpu" else None
        self.val = d if self.device is None else d.cpu()
        self.at = self.val._version

    def get(self, mutable):
        if not mutable and self.val._version != self.at:
            raise RuntimeError("Tensor cached during selective activation checkpoint has been mutated")
        return detached(self.val) if self.device is None else self.val.to(self.device)


class _SelectiveMode(TorchDispatchMode):
    """Mode that intercepts the ops of a checkpointed region, except SAC_IGNORED_OPS."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return (func if func in SAC_IGNORED_OPS else partial(self.dispatch, func))(*args, **(kwargs or {}))


class _CachingTorchDispatchMode(_SelectiveMode):
    """Mode of the first run: queries the policy and saves results."""

    def __init__(self, policy_fn, storage):
        super().__init__()
        self.policy_fn, self.storage = policy_fn, storage

    def dispatch(self, func, *args, **kwargs):
        policy = self.policy_fn(SelectiveCheckpointContext(is_recompute=False), func, *args, **kwargs)
        if isinstance(policy, bool):
            policy = CheckpointPolicy.MUST_SAVE if policy else CheckpointPolicy.PREFER_RECOMPUTE
        out = func(*args, **kwargs)
        entries = self.storage.setdefault(func, [])
        if policy in (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE):
            entries.append(_RECOMPUTE)
        else:
            offload = policy in (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD)
            entries.append(tree_map(lambda t: _Saved(t, offload) if is_tensor(t) else t, out))
        return out


class _CachedTorchDispatchMode(_SelectiveMode):
    """Mode of the recomputation: returns each saved result once."""

    def __init__(self, storage, allow_cache_entry_mutation):
        super().__init__()
        self.storage, self.mutable = storage, allow_cache_entry_mutation

    def dispatch(self, func, *args, **kwargs):
        entries = self.storage.get(func)
        if entries is None:
            raise RuntimeError(f"{func} encountered during backward but not found in storage: the recomputation ran other ops than "
                               "the forward.")
        if not entries:
            raise RuntimeError("Trying to backward an extra time. You are only allowed to backward once on any region computed under selective "
                               "activation checkpoint.")
        saved = entries.pop(0)
        if saved is _RECOMPUTE:
            return func(*args, **kwargs)
        return tree_map(lambda x: x.get(self.mutable) if isinstance(x, _Saved) else x, saved)


def create_selective_checkpoint_contexts(policy_fn_or_list, allow_cache_entry_mutation=False):
    """Returns the contexts of the forward and of the recomputation, for `checkpoint`'s context_fn
    (through functools.partial).

    Args:
        policy_fn_or_list: policy(ctx, op, *args, **kwargs) -> CheckpointPolicy or bool, or a
            list of overloads whose results are saved.
    """
    if isinstance(policy_fn_or_list, list):
        for op in policy_fn_or_list:
            if isinstance(op, OpOverloadPacket):
                raise ValueError(f"Expected op in `op_list` to be an OpOverload but got: {op}. Please update the OpOverloadPacket to a specific "
                                 "OpOverload, such as its .default")
            if not isinstance(op, OpOverload):
                raise ValueError(f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}.")
        wanted = tuple(policy_fn_or_list)

        def policy(ctx, op, *args, **kwargs):
            return CheckpointPolicy.MUST_SAVE if op in wanted else CheckpointPolicy.PREFER_RECOMPUTE
    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    storage = {}
    return _CachingTorchDispatchMode(policy, storage), _CachedTorchDispatchMode(storage, allow_cache_entry_mutation)
