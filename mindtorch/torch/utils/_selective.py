"""Selective checkpoints: which operators' results a checkpointed region keeps, and which it computes again (torch.utils.checkpoint)."""
import enum
from functools import partial

from mindtorch.core.tensor import detached, taken
from mindtorch.torch import ops
from mindtorch.torch._ops import OpOverload, OpOverloadPacket
from mindtorch.torch.utils._python_dispatch import TorchDispatchMode
from mindtorch.torch.utils._pytree import tree_map


class CheckpointPolicy(enum.Enum):
    """What is to become of an operator's result; PREFER_ leaves the choice to a compiler, and is the same as MUST_ here."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


class SelectiveCheckpointContext:
    """What a policy function is told of the call: whether it is the second one."""

    def __init__(self, *, is_recompute):
        self.is_recompute = is_recompute


#: operators that no policy is asked about
SAC_IGNORED_OPS = {ops.aten.detach.default}
_AGAIN = object()           # stands in a storage for a result that is to be computed again


class _Kept:
    """A result: its tensor, as it was when it was kept, and where that has to go back to."""

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
    """Sees the operators of a checkpointed region, but for those whose results say nothing of the run."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return (func if func in SAC_IGNORED_OPS else partial(self.taken, func))(*args, **(kwargs or {}))


class _CachingTorchDispatchMode(_SelectiveMode):
    """The first run: asks the policy, keeps results."""

    def __init__(self, policy_fn, storage):
        super().__init__()
        self.policy_fn, self.storage = policy_fn, storage

    def taken(self, func, *args, **kwargs):
        policy = self.policy_fn(SelectiveCheckpointContext(is_recompute=False), func, *args, **kwargs)
        if isinstance(policy, bool):
            policy = CheckpointPolicy.MUST_SAVE if policy else CheckpointPolicy.PREFER_RECOMPUTE
        out = func(*args, **kwargs)
        entries = self.storage.setdefault(func, [])
        if policy in (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE):
            entries.append(_AGAIN)
        else:
            offload = policy in (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD)
            entries.append(tree_map(lambda t: _Kept(t, offload) if taken(t) else t, out))
        return out


class _CachedTorchDispatchMode(_SelectiveMode):
    """The second run: gives what the first has kept, once."""

    def __init__(self, storage, allow_cache_entry_mutation):
        super().__init__()
        self.storage, self.mutable = storage, allow_cache_entry_mutation

    def taken(self, func, *args, **kwargs):
        entries = self.storage.get(func)
        if entries is None:
            raise RuntimeError(f"{func} encountered during backward but not found in storage: the checkpointed region did something else the "
                               "second time.")
        if not entries:
            raise RuntimeError("Trying to backward an extra time. You are only allowed to backward once on any region computed under selective "
                               "activation checkpoint.")
        kept = entries.pop(0)
        if kept is _AGAIN:
            return func(*args, **kwargs)
        return tree_map(lambda x: x.get(self.mutable) if isinstance(x, _Kept) else x, kept)


def create_selective_checkpoint_contexts(policy_fn_or_list, allow_cache_entry_mutation=False):
    """What `checkpoint`'s context_fn returns (by functools.partial): the contexts of the first and of the second run.

    policy_fn_or_list: policy(ctx, op, *args, **kwargs) -> CheckpointPolicy or bool, or a list of overloads whose results are kept.
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
