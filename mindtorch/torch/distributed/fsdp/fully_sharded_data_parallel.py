"""FullyShardedDataParallel: `fully_shard` as a wrapper module, with full and sharded state_dicts.
"""
import contextlib
import enum
from dataclasses import dataclass, field

import mindtorch.torch as torch
import mindtorch.torch.distributed as dist
from mindtorch.torch._refusing import refuse
from mindtorch.torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from mindtorch.torch.distributed.fsdp import _wrapped
from mindtorch.torch.distributed.fsdp._fully_shard import MixedPrecisionPolicy, fully_shard
from mindtorch.torch.distributed.tensor._api import DTensor
from mindtorch.torch.nn.modules.module import Module

__all__ = ["FullyShardedDataParallel", "ShardingStrategy", "BackwardPrefetch", "StateDictType", "CPUOffload", "MixedPrecision",
           "StateDictConfig", "FullStateDictConfig", "ShardedStateDictConfig", "LocalStateDictConfig", "OptimStateDictConfig",
           "FullOptimStateDictConfig", "ShardedOptimStateDictConfig", "LocalOptimStateDictConfig", "StateDictSettings",
           "OptimStateKeyType"]


class ShardingStrategy(enum.Enum):
    """Which state is sharded over the processes."""

    FULL_SHARD = 1
    SHARD_GRAD_OP = 2
    NO_SHARD = 3
    HYBRID_SHARD = 4
    _HYBRID_SHARD_ZERO2 = 5


class BackwardPrefetch(enum.Enum):
    """When parameters are gathered for backward."""

    BACKWARD_PRE = 1
    BACKWARD_POST = 2


class StateDictType(enum.Enum):
    """Format of a state_dict."""

    FULL_STATE_DICT = 1
    LOCAL_STATE_DICT = 2
    SHARDED_STATE_DICT = 3


class OptimStateKeyType(enum.Enum):
    """How an optimizer's state_dict names parameters."""

    PARAM_NAME = 1
    PARAM_ID = 2


@dataclass
class CPUOffload:
    """Whether parameters are stored in host memory. On CPU they are there in any case."""

    offload_params: bool = False


@dataclass
class MixedPrecision:
    """dtypes of the full parameters, of the gradient reduction and of buffers."""

    param_dtype: object = None
    reduce_dtype: object = None
    buffer_dtype: object = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: tuple = ()


@dataclass
class StateDictConfig:
    """Options of state_dict()."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """Full tensors. With `rank0_only` the other ranks get an empty dict."""

    rank0_only: bool = False


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """DTensors."""

    _use_dtensor: bool = False


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """Not supported."""


@dataclass
class OptimStateDictConfig:
    """Options of optim_state_dict()."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """Full tensors. With `rank0_only` the other ranks get an empty dict."""

    rank0_only: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """DTensors."""

    _use_dtensor: bool = False


@dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """Not supported."""

    offload_to_cpu: bool = False


@dataclass
class StateDictSettings:
    """The settings that `state_dict_type` changes."""

    state_dict_type: StateDictType = StateDictType.FULL_STATE_DICT
    state_dict_config: StateDictConfig = field(default_factory=FullStateDictConfig)
    optim_state_dict_config: OptimStateDictConfig = field(default_factory=FullOptimStateDictConfig)


_DEFAULTS = {StateDictType.FULL_STATE_DICT: (FullStateDictConfig, FullOptimStateDictConfig),
             StateDictType.SHARDED_STATE_DICT: (ShardedStateDictConfig, ShardedOptimStateDictConfig)}


class FullyShardedDataParallel(Module):
    """Wraps a module and shards its parameters over the ranks
    (https://docs.pytorch.org/docs/stable/fsdp.html).

    It is implemented with `fully_shard`. Parameters are not flattened: each is a DTensor sharded
    along dimension 0, as with use_orig_params=True. `auto_wrap_policy` wraps submodules so that not
    all parameters are gathered at once. NO_SHARD replicates the parameters; HYBRID strategies raise
    NotImplementedError. SHARD_GRAD_OP behaves like FULL_SHARD. Prefetch and offload options are
    accepted without effect.
    """

    def __init__(self, module, process_group=None, sharding_strategy=None, cpu_offload=None, auto_wrap_policy=None,
                 backward_prefetch=BackwardPrefetch.BACKWARD_PRE, mixed_precision=None, ignored_modules=None, param_init_fn=None,
                 device_id=None, sync_module_states=False, forward_prefetch=False, limit_all_gathers=True, use_orig_params=False,
                 ignored_states=None, device_mesh=None):
        super().__init__()
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        if strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2):
            raise NotImplementedError(f"FullyShardedDataParallel with {strategy} is not supported: use FULL_SHARD or NO_SHARD")
        if param_init_fn is not None:
            raise NotImplementedError("FullyShardedDataParallel with param_init_fn is not supported: initialise the module first")
        if process_group is not None and device_mesh is not None:
            raise ValueError("Cannot pass both process_group and device_mesh at the same time. Please just pass only one of them.")
        if device_id is not None:
            module.to(device_id)
        if device_mesh is None:
            kind = next((p.device.type for p in module.parameters()), "cpu")
            if process_group is None:
                device_mesh = init_device_mesh(kind, (dist.get_world_size(),))
            else:
                device_mesh = DeviceMesh.from_group(process_group, kind)
        self.process_group, self.sharding_strategy = device_mesh.get_group(0), strategy
        self._mesh = device_mesh
        ignored = {p for m in ignored_modules or () for p in m.parameters()}
        for x in ignored_states or ():
            ignored |= set(x.parameters()) if isinstance(x, Module) else {x}
        if sync_module_states:
            with torch.no_grad():
                for t in [*module.parameters(), *module.buffers()]:
                    whole = t.detach().contiguous()
                    dist.broadcast(whole, src=dist.get_global_rank(self.process_group, 0), group=self.process_group)
                    t.copy_(whole)
        mp = mixed_precision or MixedPrecision()
        if mp.buffer_dtype is not None:
            for b in module.buffers():
                if b.is_floating_point():
                    b.data = b.data.to(mp.buffer_dtype)
        policy = MixedPrecisionPolicy(mp.param_dtype, mp.reduce_dtype, None, mp.cast_forward_inputs or mp.cast_root_forward_inputs)
        options = dict(process_group=self.process_group, sharding_strategy=strategy, mixed_precision=mixed_precision,
                       ignored_states=list(ignored), use_orig_params=use_orig_params)
        if auto_wrap_policy is not None:
            from mindtorch.torch.distributed.fsdp.wrap import _wrap_by
            _wrap_by(module, auto_wrap_policy, lambda m: type(self)(m, **options), set(ignored_modules or ()))
        self._settings = StateDictSettings()
        self._fsdp_wrapped_module = module
        fully_shard(module, mesh=device_mesh, mp_policy=policy, ignored_params=ignored, _replicate=strategy is ShardingStrategy.NO_SHARD)
        self._register_state_dict_hook(FullyShardedDataParallel._shape_state)

    @property
    def module(self):
        """The wrapped module."""
        inner = self._fsdp_wrapped_module
        from mindtorch.torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper
        return inner._checkpoint_wrapped_module if isinstance(inner, CheckpointWrapper) else inner

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "_modules" in self.__dict__ and "_fsdp_wrapped_module" in self._modules:
                return getattr(self._fsdp_wrapped_module, name)
            raise

    def __getitem__(self, key):
        return self.module[key]

    def forward(self, *args, **kwargs):
        """Runs the wrapped module's forward."""
        return self._fsdp_wrapped_module(*args, **kwargs)

    # ---- names and state
    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        """Yields parameters with their names in the wrapped modules."""
        for n, p in super().named_parameters(prefix, recurse, remove_duplicate):
            yield n.replace("_fsdp_wrapped_module.", ""), p

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        """Yields buffers with their names in the wrapped modules."""
        for n, b in super().named_buffers(prefix, recurse, remove_duplicate):
            yield n.replace("_fsdp_wrapped_module.", ""), b

    @staticmethod
    def _shape_state(self, state, prefix, local_metadata):
        """state_dict hook: removes the wrapper's prefix from names and converts tensors to the
        format set by `state_dict_type`."""
        inner = prefix + "_fsdp_wrapped_module."
        settings = self._settings
        full = settings.state_dict_type is StateDictType.FULL_STATE_DICT
        config = settings.state_dict_config
        for key in [k for k in state if k.startswith(prefix)]:
            value = state.pop(key)
            name = prefix + key[len(inner):] if key.startswith(inner) else key
            if full and isinstance(value, DTensor):
                value = value.full_tensor().detach()
            if full and getattr(config, "rank0_only", False) and dist.get_rank(self.process_group) != 0:
                continue
            state[name] = value
        return state

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Loads a state_dict of full tensors or DTensors, with or without the wrappers' prefixes in
        its names."""
        if assign:
            raise NotImplementedError("FullyShardedDataParallel.load_state_dict with assign=True is not supported")
        return super().load_state_dict(state_dict, strict)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        # Runs before the wrapped module looks up its keys: adds the wrapper's prefix to them and
        # shards full tensors.
        inner = prefix + "_fsdp_wrapped_module."
        own = {inner + n: p for n, p in self._fsdp_wrapped_module.named_parameters()}
        for key in [k for k in state_dict if k.startswith(prefix)]:
            value = state_dict.pop(key)
            name = key if key.startswith(inner) else inner + key[len(prefix):]
            state_dict[name] = value
        for name, p in own.items():
            for key in (name, name.replace("_fsdp_wrapped_module.", "")):
                if key in state_dict and isinstance(p, DTensor) and not isinstance(state_dict[key], DTensor):
                    if tuple(state_dict[key].shape) == tuple(p.shape):
                        state_dict[key] = p._shard_of(state_dict[key])
        short = {n.replace("_fsdp_wrapped_module.", ""): p for n, p in own.items()}
        for key in list(state_dict):
            p = short.get(key.replace("_fsdp_wrapped_module.", ""))
            if isinstance(p, DTensor) and not isinstance(state_dict[key], DTensor) and tuple(state_dict[key].shape) == tuple(p.shape):
                state_dict[key] = p._shard_of(state_dict[key])
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)

    @staticmethod
    def fsdp_modules(module, root_only=False):
        """Returns the FullyShardedDataParallel modules in a module, including the module itself."""
        found = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)]
        return found[:1] if root_only else found

    @staticmethod
    def set_state_dict_type(module, state_dict_type, state_dict_config=None, optim_state_dict_config=None):
        """Sets the state_dict format of all FullyShardedDataParallel modules in a module. Returns
        the previous settings."""
        if state_dict_type not in _DEFAULTS:
            raise NotImplementedError(f"{state_dict_type} is not supported: use FULL_STATE_DICT or SHARDED_STATE_DICT")
        model, optim = _DEFAULTS[state_dict_type]
        for given, wanted in ((state_dict_config, model), (optim_state_dict_config, optim)):
            if given is not None and not isinstance(given, wanted):
                raise RuntimeError(f"Expected state_dict_config of type {wanted} but got {type(given)}")
        new = StateDictSettings(state_dict_type, state_dict_config or model(), optim_state_dict_config or optim())
        old = None
        for m in FullyShardedDataParallel.fsdp_modules(module):
            old = old or m._settings
            m._settings = new
        return old

    @staticmethod
    def get_state_dict_type(module):
        """Returns the StateDictSettings of a module."""
        for m in FullyShardedDataParallel.fsdp_modules(module, True):
            return m._settings
        return StateDictSettings()

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(module, state_dict_type, state_dict_config=None, optim_state_dict_config=None):
        """Context manager form of `set_state_dict_type`."""
        old = FullyShardedDataParallel.set_state_dict_type(module, state_dict_type, state_dict_config, optim_state_dict_config)
        try:
            yield
        finally:
            if old is not None:
                for m in FullyShardedDataParallel.fsdp_modules(module):
                    m._settings = old

    @staticmethod
    def optim_state_dict(model, optim, optim_state_dict=None, group=None):
        """Returns the optimizer's state by parameter name, full or sharded according to
        `state_dict_type`."""
        from mindtorch.torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
        if optim_state_dict is not None:
            raise NotImplementedError("FullyShardedDataParallel.optim_state_dict with a state_dict is not supported: pass only the optimizer")
        settings = FullyShardedDataParallel.get_state_dict_type(model)
        full = settings.state_dict_type is StateDictType.FULL_STATE_DICT
        state = get_optimizer_state_dict(model, optim, options=StateDictOptions(full_state_dict=full))
        if full and getattr(settings.optim_state_dict_config, "rank0_only", False) and dist.get_rank() != 0:
            return {}
        return state

    @staticmethod
    def optim_state_dict_to_load(model, optim, optim_state_dict, is_named_optimizer=False, load_directly=False, group=None):
        """Converts a result of `optim_state_dict` into the argument of `optim.load_state_dict`."""
        from mindtorch.torch.distributed.checkpoint.state_dict import _fill_state, set_optimizer_state_dict
        if not load_directly:
            import copy
            _fill_state(optim)
            before = copy.copy(optim.state_dict())
            before["state"] = {k: dict(v) for k, v in before["state"].items()}
            set_optimizer_state_dict(model, optim, optim_state_dict)
            after = optim.state_dict()
            optim.load_state_dict(before)
            return after
        set_optimizer_state_dict(model, optim, optim_state_dict)
        return optim.state_dict()

    # ---- work on the parameters
    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(module, recurse=True, writeback=True, rank0_only=False, offload_to_cpu=False, with_grads=False):
        """Context manager: the modules hold full parameters. With `writeback`, changes to them are
        kept."""
        if with_grads or rank0_only:
            raise NotImplementedError("summon_full_params with with_grads or rank0_only is not supported")
        states = [m._fsdp_wrapped_module._fsdp_state for m in FullyShardedDataParallel.fsdp_modules(module)]
        wholes = []
        for s in states:
            found = [torch.nn.Parameter(m.param.full_tensor().detach().clone(), m.param.requires_grad) for m in s.managed]
            wholes.append(found)
            for m, whole in zip(s.managed, found):
                s._place(m, whole)
        try:
            yield
        finally:
            for s, found in zip(states, wholes):
                for m, whole in zip(s.managed, found):
                    s._place(m, m.param)
                    if writeback:
                        m.param._local_tensor.copy_(m.param._shard_of(whole)._local_tensor)

    @contextlib.contextmanager
    def no_sync(self):
        """Context manager: full gradients accumulate on this rank. The next backward pass outside
        of it adds them in."""
        states = [m._fsdp_wrapped_module._fsdp_state for m in self.fsdp_modules(self)]
        for s in states:
            s.synchronise = False
        try:
            yield
        finally:
            for s in states:
                s.synchronise = True

    @torch.no_grad()
    def clip_grad_norm_(self, max_norm, norm_type=2.0):
        """Scales all gradients so that their norm over all ranks is at most `max_norm`. Returns the
        norm before scaling."""
        total = torch.nn.utils.clip_grad_norm_(list(self.parameters()), max_norm, norm_type)
        return total.full_tensor() if isinstance(total, DTensor) else total

    def apply(self, fn):
        """Applies `fn` to every submodule, with full parameters."""
        with self.summon_full_params(self):
            return super().apply(fn)


refuse(globals(), "parameters are never flattened (as with use_orig_params=True)", "", "FlatParameter")


def _sharded(model):
    if any(isinstance(m, FullyShardedDataParallel) for m in model.modules()):
        return FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    return None


_wrapped.sharded.append(_sharded)
