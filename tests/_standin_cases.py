"""Calls kernels of the CANN simulator's table with example arguments on both of its engines: real
PyTorch and mindtorch's cpu device.

A test has a list of cases: `call("Add", x, y, 1, out(4, 8))` for a kernel and `old("BiasAdd", [x,
y], [out(4, 8)])` for an op of the old path. Arrays become tensors, `out(4, 8, dtype="int64")` is an
output buffer filled with other values, lists stay lists, and everything else is unchanged.
`Outcome(cases, "shapes", "unique")` has `differences` between the two engines, and `without_case`,
the entries of these table modules that no case calls. Each engine runs in its own process.
"""
import contextlib
import importlib
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
ENGINES = "torch", "mindtorch.torch"
PACKAGE = "mindtorch.tools.standin.kernels"


class Case:
    def __init__(self, table, name, arguments):
        self.table, self.name, self.arguments, self.tolerance = table, name, arguments, None

    def within(self, rtol, atol):
        """Sets the case's own tolerance; returns the case."""
        self.tolerance = rtol, atol
        return self


def call(name, *arguments):
    """Returns the case of an aclnn<name> launch."""
    return Case("kernel", name, arguments)


def old(name, inputs, outputs, **attributes):
    """Returns the case of an op of the old path."""
    return Case("op", name, (inputs, outputs, attributes))


def out(*shape, dtype="float32"):
    """Returns an output buffer, filled because its initial contents must not matter."""
    return np.full(shape, 7, dtype)


def _tensors(torch, x):
    if isinstance(x, np.ndarray):
        return torch.from_numpy(x.copy())
    if isinstance(x, (list, tuple)):
        return [_tensors(torch, v) for v in x]
    return x


def _arrays(torch, x):
    if isinstance(x, torch.Tensor):
        return x.detach().contiguous().numpy()
    if isinstance(x, list):
        return [_arrays(torch, v) for v in x]
    return x


def _put(table, receiver, value):
    """Writes a value to the receiver; returns the receiver's new contents."""
    if isinstance(receiver, list):
        assert len(receiver) == len(value), f"{len(value)} results for {len(receiver)} outputs"
        return [_put(table, r, v) for r, v in zip(receiver, value)]
    if isinstance(value, table.Sized):
        return value.value.to(receiver.dtype)
    table.put(receiver, value)
    return receiver


def _computed(table, case):
    torch = table.torch
    arguments = _tensors(torch, case.arguments)
    with torch.no_grad():
        if case.table == "op":
            inputs, outputs, attributes = arguments
            results = table.OPS[case.name](inputs, outputs, attributes)
            return _arrays(torch, [inputs, _put(table, outputs, list(results))])
        kernel = table.KERNELS[case.name]
        assert len(arguments) == len(kernel.arguments), f"{len(arguments)} arguments for {len(kernel.arguments)}"
        results = kernel.function(*arguments)
        places = [k for k, a in enumerate(kernel.arguments) if a.written]
        if len(places) == 1 and (not isinstance(results, (tuple, list)) or isinstance(arguments[places[0]], list)):
            results = [results]
        assert len(results) == len(places), f"{len(results)} results for {len(places)} outputs"
        for k, value in zip(places, results):
            arguments[k] = _put(table, arguments[k], value)
    found = _arrays(torch, arguments)
    for k, a in enumerate(kernel.arguments):
        if not a.written and isinstance(case.arguments[k], np.ndarray):
            assert np.array_equal(found[k], case.arguments[k], equal_nan=found[k].dtype.kind == "f"), f"the argument {a.name} was changed"
    return found


def _entries(modules):
    """Returns the names that these modules register in the table."""
    table = importlib.import_module(PACKAGE + "._table")
    found = []
    for module in modules:
        there = dict(table.KERNELS), dict(table.OPS)
        table.KERNELS.clear()
        table.OPS.clear()
        importlib.reload(importlib.import_module(f"{PACKAGE}.{module}"))
        found += [("kernel", n) for n in table.KERNELS] + [("op", n) for n in table.OPS]
        table.KERNELS.update(there[0])
        table.OPS.update(there[1])
    return found


def _run(source, target):
    cases, modules = pickle.loads(pathlib.Path(source).read_bytes())
    importlib.import_module(PACKAGE)
    table = importlib.import_module(PACKAGE + "._table")
    assert table.torch.__name__ == os.environ["MINDTORCH_STANDIN_ENGINE"]
    results = []
    for case in cases:
        try:
            results.append(_computed(table, case))
        except Exception as e:
            results.append(f"{type(e).__name__}: {e}")
    pathlib.Path(target).write_bytes(pickle.dumps((results, _entries(modules))))


@contextlib.contextmanager
def _computing(engine, cases, modules):
    with tempfile.TemporaryDirectory() as folder:
        source, target = pathlib.Path(folder, "cases"), pathlib.Path(folder, "results")
        source.write_bytes(pickle.dumps((cases, modules)))
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("MINDTORCH_", "PYTHON"))}
        variables.update(PYTHONPATH=os.pathsep.join((str(ROOT), str(ROOT / "tests"))), MINDTORCH_STANDIN_ENGINE=engine)
        process = subprocess.Popen([sys.executable, "-c", "import _standin_cases as c, sys; c._run(*sys.argv[1:])", source, target],
                                   env=variables, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        def results():
            said = process.communicate()[0]
            assert process.returncode == 0, said
            return pickle.loads(target.read_bytes())
        try:
            yield results
        finally:
            process.kill()
            process.wait()


def _compare(a, b, where, rtol, atol):
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return [f"{where}: {b.dtype}{list(b.shape)} for {a.dtype}{list(a.shape)}"]
        if a.dtype.kind in "fc":
            # float16: one ulp of difference
            same = np.isclose(a, b, max(rtol, 2 * float(np.finfo(a.dtype).eps)), atol, equal_nan=True)
        else:
            same = a == b
        return [] if same.all() else [f"{where}: {b[~same][:4]} for {a[~same][:4]} ({(~same).sum()} of {a.size} differ)"]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [d for k, (x, y) in enumerate(zip(a, b)) for d in _compare(x, y, f"{where}, {k}", rtol, atol)]
    return [] if a.__class__ is b.__class__ and (a == b or a != a and b != b) and not isinstance(a, list) else [f"{where}: {b!r} for {a!r}"]


class Outcome:
    """Results of a list of cases on both engines.

    `differences` and `without_case` are lists of messages, empty on success.
    """

    def __init__(self, cases, *modules, rtol=1e-5, atol=1e-6):
        with contextlib.ExitStack() as stack:
            (wanted, entries), (got, _) = [r() for r in [stack.enter_context(_computing(e, cases, modules)) for e in ENGINES]]
        self.results = wanted
        self.differences = []
        for k, (case, a, b) in enumerate(zip(cases, wanted, got)):
            where = f"{case.table} {case.name} (case {k})"
            if isinstance(a, str) or isinstance(b, str):
                self.differences += [f"{where}, {e}: {r}" for e, r in zip(ENGINES, (a, b)) if isinstance(r, str)]
            else:
                self.differences += _compare(a, b, where, *(case.tolerance or (rtol, atol)))
        called = {(c.table, c.name) for c in cases}
        self.without_case = [f"{t} {n}" for t, n in entries if (t, n) not in called]
