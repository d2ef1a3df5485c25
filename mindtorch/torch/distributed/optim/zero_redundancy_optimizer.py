"""ZeroRedundancyOptimizer: every process stores the optimizer state of only a part of the
parameters."""
import copy

import mindtorch.torch as torch
import mindtorch.torch.distributed as dist
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.distributed.algorithms.join import AVERAGES, Join, Joinable, JoinHook
from mindtorch.torch.optim.optimizer import Optimizer

__all__ = ["ZeroRedundancyOptimizer"]


class _ZeROJoinHook(JoinHook):
    """Lets a process without further inputs update its part, with the gradients that the other
    processes average."""

    def __init__(self, zero):
        self.zero = zero

    def main_hook(self):
        kept = [(p, p.grad) for group in self.zero.param_groups for p in group["params"] if id(p) in AVERAGES]
        for p, _ in kept:
            p.grad = AVERAGES[id(p)]
        try:
            self.zero._update()
        finally:
            for p, g in kept:
                p.grad = g


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """Runs `optimizer_class` on this process' part of the parameters and sends the updated part to
    the other processes.

    Parameters are assigned largest first, each to the process with the fewest elements. Gradients
    must be equal on all processes, as with DistributedDataParallel. `parameters_as_bucket_view` is
    accepted without effect. `overlap_with_ddp` raises NotImplementedError.
    """

    def __init__(self, params, optimizer_class, process_group=None, parameters_as_bucket_view=False, overlap_with_ddp=False,
                 **defaults):
        if overlap_with_ddp:
            raise NotImplementedError("ZeroRedundancyOptimizer with overlap_with_ddp=True is not supported")
        self.initialized = False
        groups = self._checked(params)
        Joinable.__init__(self)
        self.process_group = dist.distributed_c10d._get_default_group() if process_group is None else process_group
        self.world_size, self.rank = dist.get_world_size(self.process_group), dist.get_rank(self.process_group)
        self.global_rank = dist.get_rank()
        self._optim_class, self._defaults = optimizer_class, defaults
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self._loads = [0] * self.world_size
        self._owner, self._all_state_dicts = {}, []
        self.optim = None
        Optimizer.__init__(self, groups, defaults)
        self._make_local()
        self.initialized = True

    @staticmethod
    def _checked(params):
        if is_tensor(params):
            raise TypeError(f"`params` argument should be an iterable of Tensors, but got {torch.typename(params)}")
        groups = list(params)
        if not groups:
            raise ValueError("ZeroRedundancyOptimizer got an empty parameter list")
        for p in groups:
            if not isinstance(p, (torch.Tensor, dict)):
                raise TypeError(f"`params` argument should be an iterable of Tensors or dicts, but got an iterable containing "
                                f"{torch.typename(p)}")
        return groups

    def _assign(self, group):
        for p in sorted(group["params"], key=lambda p: p.numel(), reverse=True):
            rank = self._loads.index(min(self._loads))
            self._owner[id(p)] = rank
            self._loads[rank] += p.numel()

    def _own(self, group, rank):
        return [p for p in group["params"] if self._owner[id(p)] == rank]

    def _make_local(self):
        self._owner, self._loads = {}, [0] * self.world_size
        for group in self.param_groups:
            self._assign(group)
        self.optim = self._optim_class([{**group, "params": self._own(group, self.rank)} for group in self.param_groups],
                                       **self._defaults)
        # Defaults that the optimizer adds to its groups (betas, eps, ...) also belong to the full
        # groups.
        for mine, group in zip(self.optim.param_groups, self.param_groups):
            for k, v in mine.items():
                if k != "params":
                    group.setdefault(k, v)
        self.defaults = {**self.optim.defaults, **self._defaults}

    def add_param_group(self, param_group):
        """Adds parameters. All processes must add the same ones."""
        super().add_param_group(param_group)
        if not self.initialized:
            return
        group = self.param_groups[-1]
        self._assign(group)
        self.optim.add_param_group({**group, "params": self._own(group, self.rank)})
        for k, v in self.optim.param_groups[-1].items():
            if k != "params":
                group.setdefault(k, v)

    def step(self, closure=None, **kwargs):
        """Updates this process' part of the parameters, then exchanges the parts so that all
        processes have all parameters."""
        Join.notify_join_context(self)
        return self._update(closure, **kwargs)

    def _update(self, closure=None, **kwargs):
        for mine, group in zip(self.optim.param_groups, self.param_groups):
            mine.update({k: v for k, v in group.items() if k != "params"})
        loss = self.optim.step(**kwargs) if closure is None else self.optim.step(closure=closure, **kwargs)
        for mine, group in zip(self.optim.param_groups, self.param_groups):
            group.update({k: v for k, v in mine.items() if k != "params"})
        self._exchange()
        return loss

    @torch.no_grad()
    def _exchange(self):
        """Sends every process' part to the other processes, one message per process and dtype."""
        under_way = []
        for rank in range(self.world_size):
            lots = {}
            for group in self.param_groups:
                for p in self._own(group, rank):
                    lots.setdefault(p.dtype, []).append(p.detach())
            source = dist.get_global_rank(self.process_group, rank)
            for lot in lots.values():
                flat = torch.cat([p.reshape(-1) for p in lot])
                under_way.append((rank, lot, flat, dist.broadcast(flat, src=source, group=self.process_group, async_op=True)))
        for rank, lot, flat, work in under_way:
            work.wait()
            if rank == self.rank:
                continue
            at = 0
            for p in lot:
                p.copy_(flat[at:at + p.numel()].view(p.shape))
                at += p.numel()

    # ---- state
    def consolidate_state_dict(self, to=0):
        """Gathers the state of all processes on rank `to`, where state_dict() then returns the full
        state. All processes must call it."""
        mine = copy.deepcopy(self.optim.state_dict())
        everybody = [None] * self.world_size if self.rank == to else None
        dist.gather_object(mine, everybody, dst=dist.get_global_rank(self.process_group, to), group=self.process_group)
        self._all_state_dicts = everybody or []

    def state_dict(self):
        """Returns the full state_dict, as of a single unsharded optimizer. Only available after
        `consolidate_state_dict`, on its rank."""
        if not self._all_state_dicts:
            raise RuntimeError("Optimizer state has not been consolidated on this rank. Please call "
                               "`consolidate_state_dict(to=...)` on all ranks beforehand if you meant to save the global state.")
        whole = super().state_dict()
        whole["state"] = {}
        number, index = {}, 0
        for group in self.param_groups:
            for p in group["params"]:
                number[id(p)] = index
                index += 1
        for rank, saved in enumerate(self._all_state_dicts):
            own = [p for group in self.param_groups for p in self._own(group, rank)]
            for i, p in enumerate(own):
                if i in saved["state"]:
                    whole["state"][number[id(p)]] = saved["state"][i]
        whole["state"] = dict(sorted(whole["state"].items()))
        return whole

    def load_state_dict(self, state_dict):
        """Loads a full state_dict. Every process keeps its part of it."""
        params = [p for group in self.param_groups for p in group["params"]]
        own = [p for group in self.param_groups for p in self._own(group, self.rank)]
        place = {id(p): i for i, p in enumerate(own)}
        state = {place[id(p)]: state_dict["state"][i] for i, p in enumerate(params)
                 if i in state_dict["state"] and id(p) in place}
        super().load_state_dict({"state": {}, "param_groups": state_dict["param_groups"]})
        local = self.optim.state_dict()
        groups = [{**{k: v for k, v in given.items() if k != "params"}, "params": mine["params"]}
                  for given, mine in zip(state_dict["param_groups"], local["param_groups"])]
        self.optim.load_state_dict({"state": state, "param_groups": groups})

    # ---- uneven inputs
    def join_hook(self, **kwargs):
        """Returns the JoinHook of this optimizer."""
        return _ZeROJoinHook(self)

    @property
    def join_device(self):
        return self.param_groups[0]["params"][0].device

    @property
    def join_process_group(self):
        return self.process_group
