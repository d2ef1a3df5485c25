"""torch._dynamo.explain: what compiling a call would produce."""
import dataclasses

from mindtorch.torch._dynamo import _mindspore


@dataclasses.dataclass
class ExplainOutput:
    """Captured graphs, their ops, the reasons for eager calls, and the guards."""

    graphs: list
    graph_count: int
    graph_break_count: int
    break_reasons: list
    op_count: int
    ops_per_graph: list = None
    out_guards: list = None
    compile_times: str = None

    def __str__(self):
        text = f"Graph Count: {self.graph_count}\nGraph Break Count: {self.graph_break_count}\nOp Count: {self.op_count}\n"
        text += "Break Reasons:\n" + "".join(f"  Break Reason {i + 1}:\n    Reason: {r}\n" for i, r in enumerate(self.break_reasons))
        if self.ops_per_graph is not None:
            text += "Ops per Graph:\n" + "".join(
                f"  Ops {i + 1}:\n" + "".join(f"    {op}\n" for op in ops) for i, ops in enumerate(self.ops_per_graph))
        if self.out_guards is not None:
            text += "Out Guards:\n" + "".join(f"  {g}\n" for g in self.out_guards)
        return text


def _own_graphs(fn):
    """Returns why sizes have their own graphs in a compiled function or module."""
    from mindtorch.torch._dynamo import eval_frame
    mine = getattr(fn, "mod", fn)
    return list(dict.fromkeys([note for c in eval_frame.everyone if c.lazily and getattr(c.fn, "mod", c.fn) is mine
                               for trace in (c.lazily.trace, c.lazily.backward) for note in trace.notes]))


def _on_npu(c, args, kwargs):
    """Runs a call three times on the npu device; after that its graphs and graph breaks are known.
    None if nothing ran there."""
    run = _mindspore.Lazily(c.title, c.options)
    for _ in range(3):
        run(c.fn, args, kwargs)
        if run.idle:
            return None
    graphs = [made.graph for end in run.trace.ends() for made in end.graphs]
    reasons = [r for r in run.reasons]
    ops = [g.calls for g in graphs]
    return ExplainOutput([g.source for g in graphs], len(graphs), len(reasons), reasons, sum(map(len, ops)), ops,
                         ["all Python values are re-evaluated at every call", *_own_graphs(c.fn)])


def _on_host(c, args, kwargs):
    """Explains a call of host tensors under backend="mindspore". After the capture, two more calls
    build the graphs, including those of any backward passes."""
    from mindtorch.torch._dynamo import _parts
    for _ in range(2):
        c(args, kwargs)
    entries, broken = _parts.all_of(c)
    reasons = [] if c.entries else [f"{r} (in {t})" for t, r in broken] or list(c.reasons)
    graphs = []
    for e in entries:
        reasons += [f"{r} (in {e.program.title})" for r in getattr(e.program, "reasons", ())]
        for trace in getattr(e.program, "traces", ()):
            graphs += [made.graph for end in trace.ends() for made in end.graphs]
    ops = [g.calls for g in graphs]
    guards = [f"{len(e.guard.tensors)} tensors' layout and requires_grad unchanged" for e in entries]
    return ExplainOutput([g.source for g in graphs], len(graphs), len(reasons), reasons, sum(map(len, ops)), ops, guards)


def explain(f, *extra_args, **extra_kwargs):
    """explain(fn)(*args): captures this call and returns a report, including its parts if there is
    a graph break.

    The call is executed: once if it is captured as one graph, else until a call captures nothing
    new; three times on the npu device.
    """
    def inner(*args, **kwargs):
        from mindtorch.torch._dynamo import _parts, eval_frame
        from mindtorch.torch.nn.modules.module import Module
        target = eval_frame.innermost_fn(f)
        if isinstance(target, eval_frame.OptimizedModule):
            target = target._orig_mod
        fn = eval_frame._Call(target) if isinstance(target, Module) else target
        own = f._compiled if isinstance(f, eval_frame.OptimizedModule) else getattr(f, "_torchdynamo_compiled", None)
        mindspore = own is not None and own.options["backend"] == "mindspore"
        c = eval_frame.Compiled(fn, {**own.options, "fullgraph": False} if mindspore else
                                {"fullgraph": False, "dynamic": None, "backend": "eager", "mode": None, "options": {}})
        if _mindspore.USED:
            explanation = _on_npu(c, args, kwargs)
            if explanation is not None:
                return explanation
        tried = None
        for _ in range(16):
            c(args, kwargs)
            # captured as one graph; or nothing can be captured in the current state
            if c.entries or not c.failures:
                break
            if c.given_up:
                before, tried = tried, _parts.attempts(c)
                if tried == before:
                    break
        if mindspore:
            return _on_host(c, args, kwargs)
        entries, broken = _parts.all_of(c)
        ops = [[n.func.__name__ for n in e.graph.nodes] for e in entries]
        guards = []
        for e in entries:
            guards += [line.removeprefix("if not (").removesuffix("): return None") for line in e.spec.lines if line[:2] == "if"]
            guards += [f"{len(e.guard.dicts)} dicts (attributes, parameters, hooks) unchanged", f"{len(e.guard.tensors)} tensors' layout "
                       "and requires_grad unchanged"] + [f"global {n!r} unchanged" for n in e.guard.globals]
        reasons = [] if c.entries else [f"{r} (in {t})" for t, r in broken] or list(c.reasons)
        return ExplainOutput([e.program.source for e in entries], len(ops), len(reasons), reasons, sum(map(len, ops)), ops, guards)
    return inner if not extra_args and not extra_kwargs else inner(*extra_args, **extra_kwargs)
