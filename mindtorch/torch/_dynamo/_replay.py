"""Captured calls as straight-line Python code: one line per op, no modules, no control flow."""

from mindtorch.backend.graph import ResultBuilder, Value, last_uses, values_in
from mindtorch.core.dispatch import autocast as _autocast
from mindtorch.core.tensor.conj_neg_bits import bits_of
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.tensor.tensor import Parameter, Tensor, attributes, own_names, is_tensor
from mindtorch.torch._dynamo import _guards


class Spec:
    """Guards on the arguments of a call. `check(args, kwargs)` returns the input tensors, or None
    if a guard fails."""

    def __init__(self, args, kwargs, fixed=()):
        self.scope = {"Tensor": Tensor, "Parameter": Parameter, "same": _guards.same, "own": attributes, "OWN": own_names(),
                      "bits_of": bits_of, "marked": self._marked, "keys_of": _guards.keys_of, "get": dict.__getitem__, "known": frozenset()}
        self.watched = frozenset()
        self.lines, self.tensors, self.names, self.fixed = [], [], [], fixed
        self.objects = []
        self.lines.append(f"if len(args) != {len(args)} or len(kwargs) != {len(kwargs)}: return None")
        for i, a in enumerate(args):
            self._leaf(f"args[{i}]", a)
        if kwargs:
            self._must(f"list(kwargs) == {self._const(list(kwargs))}")
            for k, a in kwargs.items():
                self._leaf(f"kwargs[{k!r}]", a)
        free = [n for i, n in enumerate(self.names) if i not in fixed]
        seen = {}
        for n, t in zip(self.names, self.tensors):
            if id(t) in seen:
                self._must(f"{n} is {seen[id(t)]}")
                if n in free:
                    free.remove(n)
            else:
                seen[id(t)] = n
        if len(free) > 1:
            self._must(f"len({{{', '.join(f'id({n})' for n in free)}}}) == {len(free)}")
        if free:
            self._must(f"known.isdisjoint(({''.join(f'id({n}), ' for n in free)}))")
        self.lines.append(f"return ({''.join(n + ', ' for n in self.names)})")
        src = "def check(args, kwargs):\n" + "".join(f"    {line}\n" for line in self.lines)
        exec(compile(src, "<guards of the arguments>", "exec"), self.scope)
        self.check = self.scope["check"]
        del self.tensors  # must not be kept alive

    def learn(self, reads, known):
        """Sets the results of the capture: names that the code may read, and ids of tensors that it
        reaches without receiving them."""
        self.watched, self.scope["known"] = reads, known

    def _marked(self, t):
        """True if a tensor has a user attribute that the code may read."""
        return any(k in self.watched for k in vars(t))

    def _const(self, v):
        n = f"c{len(self.scope)}"
        self.scope[n] = v
        return n

    def _must(self, condition):
        self.lines.append(f"if not ({condition}): return None")

    def _leaf(self, where, a):
        if is_tensor(a):
            n = f"t{len(self.tensors)}"
            i = len(self.tensors)
            self.tensors.append(a)
            self.names.append(n)
            self.lines.append(f"{n} = {where}")
            if i in self.fixed:
                self._must(f"{n} is {self._const(a)}")
                return
            self._must(f"{n}.__class__ is {'Parameter' if type(a) is Parameter else 'Tensor'}")
            self._must(f"own({n}).keys() <= OWN or not marked({n})")
            x = a._array
            self.lines.append(f"x = {n}._array")
            if not x.flags.writeable:  # tensors with a lazy conjugate or negative bit are read-only
                self._must(f"bits_of({n}) == {bits_of(a)}")
            self._must(f"x.shape == {self._const(x.shape)} and x.dtype == {self._const(x.dtype)} and "
                       f"x.strides == {self._const(x.strides)} and {n}._requires_grad_ is {a._requires_grad_} and {n}._device is {self._const(a._device)} and "
                       f"x.flags.writeable is {x.flags.writeable} and {n}._inference is {a._inference}")
        elif _guards.parts(a) is not None:
            self._must(f"{where}.__class__ is {self._const(type(a))}")
            if isinstance(a, dict):
                keys = _guards.keys_of(a)
                listed = where if type(a) is dict else f"keys_of({where})"
                self._must(f"list({listed}) == {self._const(keys)}")
                for k in keys:
                    c = self._const(k)
                    self._leaf(f"{where}[{c}]" if type(a) is dict else f"get({where}, {c})", dict.__getitem__(a, k))
            else:
                self._must(f"len({where}) == {len(a)}")
                for i, x in enumerate(a):
                    self._leaf(f"{where}[{i}]", x)
            if type(a) not in (tuple, list, dict) and hasattr(a, "__dict__"):
                if vars(a):
                    self._leaf(f"{where}.__dict__", vars(a))
                else:
                    self._must(f"not {where}.__dict__")
        elif isinstance(a, _guards.SIMPLE):
            if a is None or a is True or a is False:
                self._must(f"{where} is {a}")
            else:
                self._must(f"same({where}, {self._const(a)})")
        else:
            self.objects.append((a, f"the argument {where}"))
            self._must(f"{where} is {self._const(a)}")


def tensors_of(args, kwargs):
    """Returns the tensors among nested arguments, in the order of Spec."""
    out = []

    def walk(x):
        if is_tensor(x):
            out.append(x)
            return
        for i in _guards.parts(x) or ():
            walk(i)
    walk(args)
    walk(kwargs)
    return out


class Program:
    """Replay of a captured graph as a Python function of the input tensors."""

    def __init__(self, graph, entry_modes):
        self.scope = {"MODE": mode, "CAST": _autocast.switch}
        self.consts = {}
        self._make(graph, entry_modes)
        self.scope.update((v.name, v.tensor) for v in graph.parameters)

    def _ends(self, graph):
        """Returns (names of the function's parameters, source of its result)."""
        return [v.name for v in graph.inputs], self._code(graph.result)

    def _make(self, graph, entry_modes):
        ends = {}
        for v, j in last_uses(graph.nodes, graph.result).items():
            if v.kind == "node":
                ends.setdefault(j, []).append(v.name)
        lines, switches = [], False
        now = entry_modes
        for j, n in enumerate(graph.nodes):
            if n.modes != now:
                switches = True
                lines += self._switch(now, n.modes)
                now = n.modes
            f = self._const(n.func)
            call = f"{f}({', '.join([self._code(a) for a in n.args] + [f'{k}={self._code(v)}' for k, v in n.kwargs.items()])})"
            known = n.written
            outs = [(p, v.name) for p, v in zip(n.paths, n.outputs) if v.kind == "node" and v not in known]
            if len(outs) == 1 and outs[0][0] == ():
                lines.append(f"{outs[0][1]} = {call}")
            elif not outs:
                lines.append(call)
            else:
                lines.append(f"r = {call}")
                for p, name in outs:
                    lines.append(f"{name} = r{''.join(f'[{i}]' for i in p)}")
                lines.append("r = None")
            if j in ends:
                lines.append(" = ".join(sorted(ends[j])) + " = None")
        lines += self._switch(now, entry_modes)
        if switches:
            lines = ["try:"] + ["    " + x for x in lines] + ["except BaseException:",
                     f"    MODE.on, MODE.inference = {entry_modes[:2]}", f"    CAST({self._const(entry_modes[2:])})", "    raise"]
        given, result = self._ends(graph)
        lines.append(f"return {result}")
        self.source = f"def replay({', '.join(given)}):\n" + "".join(f"    {x}\n" for x in lines)
        exec(compile(self.source, "<compiled>", "exec"), self.scope)
        self.run = self.scope["replay"]

    def _switch(self, now, to):
        """Returns the source lines that switch the modes."""
        lines = [] if now[:2] == to[:2] else [f"MODE.on, MODE.inference = {to[:2]}"]
        return lines if now[2:] == to[2:] else [*lines, f"CAST({self._const(to[2:])})"]

    def _const(self, v):
        n = self.consts.get(id(v))
        if n is None:
            n = self.consts[id(v)] = f"c{len(self.scope)}"
            self.scope[n] = v
        return n

    def _code(self, a):
        """Returns the Python source of a template."""
        t = a.__class__
        if t is Value:
            return a.name
        if a is None or a is True or a is False or t is int or t is str:
            return repr(a)
        if t is tuple:
            return f"({''.join(self._code(x) + ', ' for x in a)})"
        if t is list:
            return f"[{', '.join(self._code(x) for x in a)}]"
        if t is dict:
            return f"{{{', '.join(f'{self._code(k)}: {self._code(v)}' for k, v in a.items())}}}"
        if t is slice:
            return f"slice({self._code(a.start)}, {self._code(a.stop)}, {self._code(a.step)})"
        if t is ResultBuilder:
            return self._const(a.parts) if a.kind == "object" else f"{self._const(a.made)}({self._code(a.parts)})"
        return self._const(a)


class Free(Program):
    """Like `Program`, with the parameters passed as arguments too.

    `run(*inputs, *parameters)` returns a tuple of the tensors computed for the result, and
    `result(*inputs, *parameters, *computed)` returns the result.
    """

    def __init__(self, graph, entry_modes):
        super().__init__(graph, entry_modes)
        for v in graph.parameters:
            del self.scope[v.name]

    def _ends(self, graph):
        made = [v.name for v in dict.fromkeys(values_in(graph.result)) if v.kind == "node"]
        given = [v.name for v in (*graph.inputs, *graph.parameters)]
        source = f"def result({', '.join([*given, *made])}):\n    return {self._code(graph.result)}\n"
        exec(compile(source, "<compiled>", "exec"), self.scope)
        self.result = self.scope["result"]
        return given, f"({''.join(n + ', ' for n in made)})"
