"""torch._dynamo.explain: what compiling a call would give."""
import dataclasses


@dataclasses.dataclass
class ExplainOutput:
    """Graphs captured, ops in them, why a call ran eagerly, and what is guarded."""

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


def explain(f, *extra_args, **extra_kwargs):
    """explain(fn)(*args): captures that one call (which is run) and reports."""
    def inner(*args, **kwargs):
        from mindtorch.torch._dynamo import eval_frame
        from mindtorch.torch.nn.modules.module import Module
        target = eval_frame.innermost_fn(f)
        if isinstance(target, eval_frame.OptimizedModule):
            target = target._orig_mod
        fn = eval_frame._Call(target) if isinstance(target, Module) else target
        c = eval_frame.Compiled(fn, {"fullgraph": False, "dynamic": None, "backend": "eager", "mode": None, "options": {}})
        for _ in range(2):          # what only the first call does (filling a cache, say) may be over in the second
            c(args, kwargs)
            if c.entries or c.given_up:
                break
        ops = [[op.name for op in e.program.captured] for e in c.entries]
        guards = []
        for e in c.entries:
            guards += [line.removeprefix("if not (").removesuffix("): return None") for line in e.spec.lines if line[:2] == "if"]
            guards += [f"{len(e.guard.dicts)} dicts (attributes, parameters, hooks) unchanged", f"{len(e.guard.tensors)} tensors' layout "
                       "and requires_grad unchanged"] + [f"global {n!r} unchanged" for _, n, _ in e.guard.globals]
        reasons = [] if c.entries else list(c.reasons)
        return ExplainOutput([e.program.source for e in c.entries], len(ops), len(reasons), reasons, sum(map(len, ops)), ops, guards)
    return inner if not extra_args and not extra_kwargs else inner(*extra_args, **extra_kwargs)
