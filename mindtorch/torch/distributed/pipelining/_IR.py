"""torch.distributed.pipelining._IR: splits a model's forward into stages."""
import enum
from typing import Any, NamedTuple

import mindtorch.torch as torch
from mindtorch.torch import fx
from mindtorch.torch.distributed.pipelining.stage import build_stage

__all__ = ["Pipe", "PipeInfo", "SplitPoint", "pipe_split", "pipeline", "annotate_split_points"]


class SplitPoint(enum.Enum):
    """Whether the split is before or after a submodule."""

    BEGINNING = 1
    END = 2


class PipeInfo(NamedTuple):
    """The pipeline information that `build_stage` needs."""

    graph: Any
    num_stages: int
    has_loss_and_backward: bool = False


class _Tracer(fx.Tracer):
    """Traces a module into a graph. Submodules at a split point are leaves, and `pipe_split`
    becomes a node."""

    current = None

    def __init__(self, points):
        super().__init__()
        self.points = points

    def is_leaf_module(self, m, module_qualified_name):
        return module_qualified_name in self.points or super().is_leaf_module(m, module_qualified_name)

    def trace(self, root, concrete_args=None):
        before, _Tracer.current = _Tracer.current, self
        try:
            return super().trace(root, concrete_args)
        finally:
            _Tracer.current = before


def pipe_split():
    """Marks the beginning of the next stage in a forward that `pipeline` traces. Does nothing
    outside of tracing."""
    if _Tracer.current is not None:
        _Tracer.current.create_proxy("call_function", pipe_split, (), {})


def annotate_split_points(mod, spec):
    """Sets the split points of a module: {submodule name: SplitPoint}."""
    for name, point in spec.items():
        mod.get_submodule(name)
        if not isinstance(point, SplitPoint):
            raise ValueError(f"Unknown split point type: {point}")
    mod._split_points = dict(spec)


class Pipe(torch.nn.Module):
    """The stages of a model, as modules that keep its parameter names. Calling it runs all stages
    in sequence."""

    def __init__(self, stages, graph):
        super().__init__()
        self._stages, self._graph = torch.nn.ModuleList(stages), graph
        self.num_stages, self.has_loss_and_backward = len(stages), False

    def forward(self, *args, **kwargs):
        """Runs all stages in sequence."""
        out = self._stages[0](*args, **kwargs)
        for stage in self._stages[1:]:
            out = stage(*out) if isinstance(out, tuple) else stage(out)
        return out

    def get_stage_module(self, stage_idx):
        """Returns the module of a stage."""
        if not 0 <= stage_idx < self.num_stages:
            raise ValueError(f"Invalid stage index {stage_idx}!")
        return self._stages[stage_idx]

    def info(self):
        """Returns the pipeline information that `build_stage` needs."""
        return PipeInfo(self._graph, self.num_stages)

    def build_stage(self, stage_index, device, group=None):
        """Returns a stage as a PipelineStage in the calling process."""
        return build_stage(self.get_stage_module(stage_index).to(device), stage_index, self.info(), device, group)

    @staticmethod
    def from_tracing(mod, example_args, example_kwargs=None, split_policy=None):
        """Returns a Pipe of a module whose forward has no data-dependent control flow. See
        `pipeline`."""
        points = getattr(mod, "_split_points", {})
        graph = _Tracer(points).trace(mod)
        if split_policy is not None:
            graph = split_policy(fx.GraphModule(mod, graph)).graph
        return Pipe(_cut(mod, graph, points), graph)


def _cut(mod, graph, points):
    """Returns the modules of the stages."""
    nodes, stage, at = [n for n in graph.nodes if n.op != "output"], 0, {}
    for n in nodes:
        if n.op == "call_function" and n.target is pipe_split:
            stage += 1
            continue
        point = points.get(n.target) if n.op == "call_module" else None
        if point is SplitPoint.BEGINNING:
            stage += 1
        at[n] = stage
        if point is SplitPoint.END:
            stage += 1
    if not stage:
        raise ValueError("the module has no split point: pass split_spec or split_policy, or call pipe_split() in forward")
    out = next(n for n in graph.nodes if n.op == "output")
    at[out] = stage
    for n in nodes:
        # Assigns parameters and buffers that forward reads to the stage that uses them.
        if n.op == "get_attr":
            used = {at[u] for u in n.users}
            if len(used) > 1:
                raise NotImplementedError(f"pipeline: {n.target} is used in the stages {sorted(used)}: shared parameters are not supported")
            at[n] = used.pop() if used else 0
    homes = {}
    for n in nodes:
        if n.op == "call_module" and homes.setdefault(n.target, at[n]) != at[n]:
            raise NotImplementedError(f"pipeline: {n.target} is used in the stages {homes[n.target]} and {at[n]}: shared submodules are not supported")
    made, passed = [], []
    for k in range(stage + 1):
        mine = [n for n in nodes if at.get(n) == k]
        here, known = fx.Graph(), {}
        for n in passed:
            known[n] = here.placeholder(n.name)
        for n in mine:
            known[n] = here.node_copy(n, known.__getitem__)
        if k == stage:
            here.output(fx.map_arg(out.args[0], known.__getitem__))
        else:
            # Values that later stages read pass through the stages in between.
            passed = [n for n in nodes if n in at and n.op != "get_attr" and at[n] <= k and any(at[u] > k for u in n.users)]
            here.output(known[passed[0]] if len(passed) == 1 else tuple(known[n] for n in passed))
        made.append(fx.GraphModule(mod, here))
    return made


def pipeline(module, mb_args, mb_kwargs=None, split_spec=None, split_policy=None):
    """Returns a Pipe of a module. The split points are submodules ({name: SplitPoint}), the
    pipe_split nodes that a policy adds to the graph, or the pipe_split() calls in forward.

    `mb_args` and `mb_kwargs` are example arguments of one microbatch, accepted for PyTorch
    compatibility. Forward is traced without values.
    """
    if split_spec is not None and split_policy is not None:
        raise ValueError("Cannot specify both `split_spec` and `split_policy`. Please use only one of them.")
    if split_spec is not None:
        annotate_split_points(module, split_spec)
    try:
        return Pipe.from_tracing(module, mb_args, mb_kwargs, split_policy)
    finally:
        if split_spec is not None:
            del module._split_points
