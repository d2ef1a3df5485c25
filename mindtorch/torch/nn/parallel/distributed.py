"""torch.nn.parallel.DistributedDataParallel: one process per device, with gradients averaged over
all processes."""
import contextlib
import dataclasses
import inspect

import mindtorch.torch as torch
import mindtorch.torch.distributed as dist
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.distributed.algorithms.join import AVERAGES, Join, Joinable, JoinHook
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.nn.parallel._reducer import FIRST_BUCKET, Reducer

#: how torch.compile treats the functions of this module (torch/_dynamo/_capture.py)
CAPTURE = "refused"

__all__ = ["DistributedDataParallel"]


def _tensors_in(value):
    """Returns the tensors in a module's output, including those in containers and dataclasses."""
    if is_tensor(value):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in _tensors_in(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in _tensors_in(v)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [t for f in dataclasses.fields(value) for t in _tensors_in(getattr(value, f.name))]
    return []


def _moved(value, device):
    """Moves a module's inputs to a device, including tensors in containers. Other values are
    unchanged."""
    if is_tensor(value):
        return value.to(device)
    if isinstance(value, tuple):
        parts = [_moved(v, device) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [_moved(v, device) for v in value]
    if isinstance(value, dict):
        return type(value)([(k, _moved(v, device)) for k, v in value.items()])
    return value


class _DDPJoinHook(JoinHook):
    """Actions of a process without further inputs for a DistributedDataParallel."""

    def __init__(self, ddp, divide_by_initial_world_size):
        self.ddp = ddp
        ddp._divide_by_initial_world_size = divide_by_initial_world_size

    def main_hook(self):
        ddp = self.ddp
        # Take part in the broadcast of buffers that the other processes start in their forward.
        if ddp._will_sync_buffers_joined():
            ddp._broadcast_buffers(ddp._common_rank(False))
        if not ddp._others_synchronise(joined=True):
            ddp.require_forward_param_sync = False
            return
        ddp.require_forward_param_sync = True
        divide_by = None
        if not ddp._divide_by_initial_world_size:
            divide_by = dist.all_reduce(torch.zeros(1, device="cpu"), group=ddp.process_group, async_op=True)
        ddp.reducer.shadow(divide_by)

    def post_hook(self, is_last_joiner):
        ddp = self.ddp
        source = ddp._common_rank(is_last_joiner)
        ddp._broadcast(ddp._states(), source)
        for p in ddp.reducer.params:
            AVERAGES.pop(id(p), None)


class DistributedDataParallel(Module, Joinable):
    """Wraps a module as `module` and averages its gradients over all processes at the end of each
    backward pass
    (https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html).

    Rank 0 broadcasts its parameters and buffers at construction, and its buffers before each
    forward. Gradients are communicated in buckets while the backward pass runs.
    """

    def __init__(self, module, device_ids=None, output_device=None, dim=0, broadcast_buffers=None, init_sync=True,
                 process_group=None, bucket_cap_mb=None, find_unused_parameters=False, check_reduction=False,
                 gradient_as_bucket_view=False, static_graph=False, delay_all_reduce_named_params=None,
                 param_to_hook_all_reduce=None, mixed_precision=None, device_mesh=None, skip_all_reduce_unused_params=False,
                 bucket_cap_mb_list=None, batched_grad_copy=False, forward_sync_buffers=None):
        super().__init__()
        Joinable.__init__(self)
        for name, value in (("mixed_precision", mixed_precision), ("delay_all_reduce_named_params", delay_all_reduce_named_params),
                            ("param_to_hook_all_reduce", param_to_hook_all_reduce)):
            if value is not None:
                raise NotImplementedError(f"DistributedDataParallel with {name} is not supported")
        if device_mesh is not None:
            if process_group is not None:
                raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
            if device_mesh.ndim != 1:
                raise RuntimeError(f"Only 1D device mesh is supported, but got {device_mesh}.")
            process_group = device_mesh.get_group(0)
        self.process_group = dist.distributed_c10d._get_default_group() if process_group is None else process_group
        self.parameters_to_ignore = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = [(n, p) for n, p in module.named_parameters() if n not in self.parameters_to_ignore]
        if not any(p.requires_grad for _, p in named):
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameters that require a "
                               "gradient.")
        for n, p in named:
            if hasattr(p, "placements"):
                raise NotImplementedError(f"DistributedDataParallel of a module whose parameter '{n}' is a DTensor is not supported")
            if isinstance(p, torch.nn.parameter.UninitializedParameter):
                raise RuntimeError("Modules with uninitialized parameters can't be used with `DistributedDataParallel`. Run a "
                                   "dummy forward pass to correctly initialize the modules")
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError("device_ids can only be None or contain a single element.")
        devices = {p.device for _, p in named}
        kinds = {d.type for d in devices}
        if kinds == {"cpu"} and (device_ids or output_device is not None):
            raise ValueError("DistributedDataParallel device_ids and output_device arguments only work with "
                             f"single-device/multiple-device GPU modules or CPU modules, but got device_ids {device_ids}, "
                             f"output_device {output_device}, and module parameters {kinds}.")
        self.module = module
        self.device_ids = None if not device_ids else list(device_ids)
        self.output_device = output_device
        self.device, self.device_type = next(iter(devices)), next(iter(kinds))
        self.dim, self.is_multi_device_module = dim, len(devices) > 1
        chosen = [v for v in (forward_sync_buffers, broadcast_buffers) if v is not None]
        self.broadcast_buffers = chosen[0] if chosen else True
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self.skip_all_reduce_unused_params = skip_all_reduce_unused_params
        self.bucket_bytes_cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * 1024 * 1024)
        self._caps = [int(mb * 1024 * 1024) for mb in bucket_cap_mb_list] if bucket_cap_mb_list else None
        self._first_cap = FIRST_BUCKET if bucket_cap_mb is None else min(FIRST_BUCKET, self.bucket_bytes_cap)
        self._divide_by_initial_world_size = True
        self._comm_hooks = []
        if init_sync:
            self._verify_same(named)
            self._broadcast(self._states(), 0)
        self._make_reducer()

    def _make_reducer(self):
        named = [(n, p) for n, p in self.module.named_parameters() if n not in self.parameters_to_ignore and p.requires_grad]
        sparse = {id(m.weight) for m in self.module.modules()
                  if isinstance(m, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and m.sparse}
        self.reducer = Reducer(named, self.process_group, self.bucket_bytes_cap, self._first_cap, self._caps,
                               self.find_unused_parameters, self.gradient_as_bucket_view, self.static_graph,
                               [i for i, (_, p) in enumerate(named) if id(p) in sparse])

    def _verify_same(self, named):
        """Raises RuntimeError unless the parameters have the same shapes and dtypes on all ranks.
        """
        mine = [(tuple(p.shape), str(p.dtype), p.requires_grad) for _, p in named]
        everybody = [None] * dist.get_world_size(self.process_group)
        dist.all_gather_object(everybody, mine, group=self.process_group)
        rank = dist.get_rank(self.process_group)
        for other, theirs in enumerate(everybody):
            if len(theirs) != len(mine):
                raise RuntimeError(f"DDP expects same model across all ranks, but Rank {rank} has {len(mine)} params, while rank "
                                   f"{other} has inconsistent {len(theirs)} params.")
            for (n, _), a, b in zip(named, mine, theirs):
                if a != b:
                    raise RuntimeError(f"DDP expects same model across all ranks, but on rank {rank} the parameter '{n}' has "
                                       f"shape, dtype, requires_grad {a}, on rank {other} {b}: [{rank}]: params appear not to "
                                       "match in this process.")

    # ---- parameters and buffers
    def _buffers_sent(self):
        return [b for n, b in self.module.named_buffers() if n not in self.parameters_to_ignore]

    def _states(self):
        params = [p.detach() for n, p in self.module.named_parameters() if n not in self.parameters_to_ignore]
        return params + [b.detach() for b in self._buffers_sent()]

    def _broadcast(self, tensors, source):
        """Broadcasts the tensors from rank `source`, in one message per dtype and device."""
        lots = {}
        for t in tensors:
            lots.setdefault((t.dtype, t.device), []).append(t)
        source = dist.get_global_rank(self.process_group, source)
        for lot in lots.values():
            flat = torch.cat([t.reshape(-1) for t in lot])
            dist.broadcast(flat, src=source, group=self.process_group)
            at = 0
            with torch.no_grad():
                for t in lot:
                    t.copy_(flat[at:at + t.numel()].view(t.shape))
                    at += t.numel()

    def _broadcast_buffers(self, source=0):
        self._broadcast([b.detach() for b in self._buffers_sent()], source)

    def will_sync_module_buffers(self):
        """True if the next forward starts with a broadcast of buffers."""
        return self.require_forward_param_sync and self.broadcast_buffers and len(self._buffers_sent()) > 0

    _will_sync_buffers_joined = will_sync_module_buffers

    # ---- forward
    def forward(self, *inputs, **kwargs):
        """Runs the module's forward."""
        syncs = torch.is_grad_enabled() and self.require_backward_grad_sync
        divide_by = None
        joining = self._join_config.enable
        self.reducer.joining = joining
        if syncs:
            self.reducer.check_finished()
        if joining:
            Join.notify_join_context(self)
        if self.will_sync_module_buffers():
            self._broadcast_buffers(self._common_rank(True) if joining else 0)
        if joining:
            self._others_synchronise(joined=False)
            if syncs and not self._divide_by_initial_world_size:
                divide_by = dist.all_reduce(torch.ones(1, device="cpu"), group=self.process_group, async_op=True)
        if self.device_ids and not self.is_multi_device_module:
            inputs, kwargs = _moved(inputs, self.device), _moved(kwargs, self.device)
        output = self.module(*inputs, **kwargs)
        if syncs:
            self.require_forward_param_sync = True
            find = self.find_unused_parameters and not self.static_graph
            self.reducer.prepare(_tensors_in(output) if find else (), divide_by)
        else:
            self.require_forward_param_sync = False
        return output

    @contextlib.contextmanager
    def no_sync(self):
        """Within the block, gradients are only accumulated locally. The first backward pass after
        it averages the sums."""
        old, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = old

    def train(self, mode=True):
        super().train(mode)
        return self

    # ---- uneven inputs
    def join(self, divide_by_initial_world_size=True, enable=True, throw_on_early_termination=False):
        """Context manager around a training loop whose ranks have different numbers of inputs.

        Ranks without further inputs match the collectives of the others. Gradients are divided by
        the total number of ranks, or by the number of ranks that still have inputs. At the end all
        ranks receive the parameters of one of the last ranks.
        """
        return Join([self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size)

    def join_hook(self, **kwargs):
        """Returns the JoinHook of this module; accepts divide_by_initial_world_size."""
        return _DDPJoinHook(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self):
        return self.device

    @property
    def join_process_group(self):
        return self.process_group

    def _others_synchronise(self, joined):
        """True if the gradients of this iteration are averaged. Processes without inputs learn this
        from the others."""
        flag = torch.tensor([1.0 if not joined and self.require_backward_grad_sync and torch.is_grad_enabled() else 0.0], device="cpu")
        dist.all_reduce(flag, group=self.process_group)
        return flag.item() > 0

    def _common_rank(self, candidate):
        """Returns the highest rank among the candidates."""
        rank = torch.tensor([float(dist.get_rank(self.process_group)) if candidate else -1.0], device="cpu")
        dist.all_reduce(rank, op=dist.ReduceOp.MAX, group=self.process_group)
        if rank.item() == -1:
            raise ValueError("no rank is left to broadcast the values")
        return int(rank.item())

    # ---- hooks
    def register_comm_hook(self, state, hook):
        """Registers hook(state, bucket) -> Future of the bucket's reduced tensor, in place of
        averaging.

        The bucket holds the gradients of this process, not divided. At most one hook can be
        registered.
        """
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        params = inspect.signature(hook).parameters if not isinstance(hook, type) else {}
        bucket = params.get("bucket")
        if bucket is not None and bucket.annotation not in (inspect._empty, dist.GradBucket, "dist.GradBucket",
                                                            "GradBucket", "torch.distributed.GradBucket"):
            raise ValueError("Communication hook: bucket annotation should be dist.GradBucket.")
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self._comm_hooks.append((hook, state))
        self.reducer.hook = (state, hook)

    def _register_builtin_comm_hook(self, comm_hook_type):
        from mindtorch.torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        known = {"ALLREDUCE": default_hooks.allreduce_hook, "FP16_COMPRESS": default_hooks.fp16_compress_hook}
        self.register_comm_hook(self.process_group, known[getattr(comm_hook_type, "name", str(comm_hook_type))])

    def _register_fused_optim(self, optim, *args, optim_params=None, **kwargs):
        raise NotImplementedError("DistributedDataParallel._register_fused_optim is not supported: call optimizer.step()")

    def _set_static_graph(self):
        """Enables `static_graph`."""
        if not self.static_graph:
            self.static_graph = self.reducer.static = self.reducer.learning = True
            self.reducer.find_unused = False

    def _get_ddp_logging_data(self):
        """Returns settings and statistics of the reduction."""
        r = self.reducer
        return {"world_size": r.world, "rank": dist.get_rank(self.process_group), "module_name": type(self.module).__name__,
                "backend_name": dist.get_backend(self.process_group), "find_unused_parameters": self.find_unused_parameters,
                "gradient_as_bucket_view": self.gradient_as_bucket_view, "static_graph": self.static_graph,
                "broadcast_buffers": self.broadcast_buffers, "num_parameter_tensors": len(r.params),
                "bucket_cap_bytes": self.bucket_bytes_cap, "has_rebuilt_buckets": not r.rebuild,
                "bucket_sizes": ", ".join(str(sum(p.numel() * p.element_size() for p in b.params)) for b in r.buckets)}

    def __getstate__(self):
        if self.process_group is not dist.group.WORLD:
            raise RuntimeError("DDP Pickling/Unpickling are only supported when using DDP with the default process group. That "
                               "is, when you have called init_process_group and have not passed process_group argument to DDP "
                               "constructor")
        state = {k: v for k, v in self.__dict__.items() if k not in ("process_group", "reducer")}
        return state

    def __setstate__(self, state):
        self.process_group = dist.distributed_c10d._get_default_group()
        super().__setstate__(state)
        self.__dict__.setdefault("require_forward_param_sync", True)
        self.__dict__.setdefault("require_backward_grad_sync", True)
        self._make_reducer()
