"""Mutation tests: plants twenty mistakes, one at a time, and prints which the tests detect.

A seeded generator drew the lines from all code lines of ops/, core/, torch/nn, torch/optim and
serialization, before anyone checked which tests reach them. Then a plausible mistake was chosen for
each line. (Lines were skipped where every mistake only affects speed, memory or wording.) A line
that no longer exists is an error: choose another mutation in its place.

For each mutation, the tests named with it run first, in a copy of the tree. With `--whole`, a
mutation that survives them is planted again for the complete default run, which takes as long as
that run. The named tests must pass without a mutation, which is checked first. The exit status is 0
if enough mutations were killed.

    python tests/mutate.py                  # all, the named tests only
    python tests/mutate.py 3 17 --whole     # two of them, with the whole default run for what survives

With --random, the mistakes are drawn (tests/_mutants.py), and the tests are those that
tests/recorded.xz lists for the function, fastest files first. --left-out checks the opposite: it
plants all mistakes that affect few tests at once, and runs the tests that no mistake affects, of
the jobs that CI runs in part. These must pass: a failing test is one that `python -m tests.changed`
leaves out wrongly.

    python tests/mutate.py --random 100 --seed 1
    python tests/mutate.py --random 100 --seed 1 --left-out
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

import _affected
import _jobs
import _mutants

ROOT = pathlib.Path(__file__).resolve().parent.parent
#: Number of mutations that must be killed.
WANTED = 18
#: Seconds after which a run counts as a hang, which also kills the mutant.
LIMIT = 1200


class Mutation(NamedTuple):
    """One mistake: `old` is a complete line of the file (or, where the line is not unique, several
    lines of which one changes)."""

    file: str
    old: str
    new: str
    tests: str
    note: str = ""


MUTATIONS = [
    Mutation("ops/indexing/_subscript.py", "    short = inplace.trimmed(have, want)",
             "    short = have",
             "tests/ops/test_ops_index.py::test_forms_and_errors_of_setitem"),
    Mutation("ops/elementwise/foreach.py", "        if other.ndim or other._numel != 1:",
             "        if other.ndim and other._numel != 1:",
             "tests/ops/test_foreach.py::test_errors"),
    Mutation("backend/cpu/ordering.py", "    fresh_run[..., 1:] = s[..., 1:] != s[..., :-1]",
             "    fresh_run[..., 1:] = s[..., 1:] > s[..., :-1]",
             "tests/ops/test_ops_sort.py::test_mode_with_trailing_nan"),
    Mutation("ops/linalg/_norms.py", "    if len(dims) == 2:\n        return matrix_norm_of(input, ord, dims, keepdim, dtype)",
             "    if len(dims) == 2:\n        return matrix_norm_of(input, ord, dims, keepdim, None)",
             "tests/ops/test_ops_linalg.py::test_dtype_of_norms"),
    Mutation("backend/cpu/random_kernels.py", "    return a if a.flags.c_contiguous else random.in_memory_order(a)",
             "    return a",
             "tests/ops/test_ops_random.py::test_like"),
    Mutation("backend/cpu/embedding.py", "        count = np.bincount(flat, minlength=rows)",
             "        count = np.bincount(flat, minlength=rows) + 1",
             "tests/ops/test_ops_nn.py::test_embedding"),
    Mutation("ops/misc.py", "    return self.contiguous().view(sizes)",
             "    return self.view(sizes)",
             "tests/ops/test_ops_misc.py::test_resize_out_of_place"),
    Mutation("ops/nn/conv.py", "            for m, v in zip(names, vs)))\n    kernel = w[2:]",
             "            for m, v in zip(names, vs)))\n    kernel = w[:1:-1]",
             "tests/conformance/test_opinfo.py::test_op[nn.functional.conv_transpose2d-float32]"),
    Mutation("core/dispatch/meta.py", "        if not is_meta_array(a):",
             "        if is_meta_array(a):",
             "tests/core/test_meta.py::test_shapes_match_real_results"),
    Mutation("core/dispatch/primitives.py", "        if len(node._input_metadata) == 1:",
             "        if len(node._input_metadata) >= 1:",
             "tests/ops/test_ops_sort.py::test_sort"),
    Mutation("core/dispatch/op_registry.py", "                inplace.check_inplace(self, False)",
             "                pass",
             "tests/core/test_autograd.py::test_inference_tensors"),
    Mutation("backend/cpu/random.py", "        x = _pair_normals(generator, n)",
             "        x = _pair_normals(generator, n)[::-1]",
             "tests/core/test_rng.py::test_states_are_exchanged_with_torch"),
    Mutation("torch/nn/modules/conv.py", "            if self.bias is not None:",
             "            if self.bias is None:",
             "tests/facade/test_nn_module.py::test_lazy_modules"),
    Mutation("torch/nn/modules/_to.py", "        if not isinstance(found.get(flag, False), bool):",
             "        if not isinstance(found.get(flag, False), (bool, int)):",
             "tests/facade/test_nn_module.py::test_flags_of_to"),
    Mutation("torch/nn/utils/spectral_norm.py", "        if n_power_iterations <= 0:",
             "        if n_power_iterations < 0:",
             "tests/facade/test_nn_utils.py::test_weight_norm_invalid_calls_raise"),
    Mutation("torch/nn/modules/module.py", '            _forget(d, name, "_parameters", "_buffers")',
             '            _forget(d, name, "_parameters")',
             "tests/facade/test_nn_module.py::test_setattr"),
    Mutation("torch/optim/adamw.py", "                 maximize=False, foreach=None, capturable=False, differentiable=False, fused=None):",
             "                 maximize=True, foreach=None, capturable=False, differentiable=False, fused=None):",
             "tests/facade/test_optim.py::test_differentiable"),
    Mutation("torch/optim/_lr_cyclic.py", "        return (end - start) * pct + start",
             "        return (end - start) * pct + end",
             "tests/facade/test_lr_scheduler.py::test_rates_momenta_and_state"),
    Mutation("torch/storage.py", "        stride = _ops.shapes._sizes.contiguous_strides(tuple(size))",
             "        stride = _ops.shapes._sizes.contiguous_strides(tuple(size))[::-1]",
             "tests/ops/test_ops_index.py::test_set_"),
    Mutation("torch/_zipfile.py", "        return np.frombuffer(self._map, np.uint8, size, start)",
             "        return np.frombuffer(self._map, np.uint8, size, start + 1)",
             "tests/facade/test_serialization.py::test_torch_loads_our_files"),
]


def planted(root, m):
    """Returns the file of a mutation and its mutated text; raises LookupError if the line does not
    occur exactly once."""
    path = root / "mindtorch" / m.file
    text = path.read_text("utf-8")
    count = f"\n{text}\n".count(f"\n{m.old}\n")
    if count != 1:
        raise LookupError(f"{m.file} has this line {count} times, not once; choose another mutation:\n{m.old}")
    if m.old == m.new:
        raise LookupError(f"{m.file}: nothing is changed in\n{m.old}")
    return path, f"\n{text}\n".replace(f"\n{m.old}\n", f"\n{m.new}\n")[1:-1]


def copy_tree(target):
    """Copies the files of this tree that the tests need."""
    skip = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".pytest_cache", ".hypothesis", "build", "*.egg-info")
    shutil.copytree(ROOT, target, ignore=skip)


def run_tests(folder, args, python=sys.executable, stop=True):
    """Returns pytest's exit status and the first failure or error it prints (stop=False: all of
    them), else its last line."""
    command = [python, "-m", "pytest", "-q", *(["-x"] if stop else []), "-p", "no:cacheprovider", *args]
    variables = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
    try:
        done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return -1, f"not done in {LIMIT} s"
    lines = done.stdout.splitlines()
    named = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    found = named or lines[-1:] or done.stderr.splitlines()[-1:] or [""]
    return done.returncode, found[0][:150] if stop else "\n    ".join([*(named or []), *lines[-1:]])


def judge(folder, m, whole):
    """Returns how the mutation was detected, or None."""
    path, text = planted(folder, m)
    before = path.read_text("utf-8")
    path.write_text(text, "utf-8")
    try:
        for args in (m.tests.split(), []) if whole else (m.tests.split(),):
            status, what = run_tests(folder, args)
            if status not in (0, 5):
                return what
    finally:
        path.write_text(before, "utf-8")
    return None


class Random:
    """Mutants drawn with a seed, judged by the tests that the record lists for their functions."""

    #: Jobs in the order in which their tests run.
    ORDER = ("default", "slow", "dist", "ascend", "libraries", "npu")
    #: Recorded seconds of the files that one pytest process runs.
    BATCH = 30
    #: For --left-out: the largest share of the record's rows that a mutant may affect. Of 100
    #: mutants 84 affect less, which leaves a quarter of the tests' time (with a share of one half:
    #: all mutants, 3%).
    FEW = 0.05

    def __init__(self, count, seed, limit):
        self.record = _affected.Record.load()
        if self.record is None:
            raise SystemExit("tests/recorded.xz, which lists the tests of each function, does not exist: run python -m tests.record")
        self.mutants, self.limit = _mutants.drawn(count, seed), limit
        self.sources = {m.path: (ROOT / m.path).read_text("utf-8") for m in self.mutants}

    def tests_of(self, mutant, job):
        """Returns [(seconds, file, tests)] of a job's rows that execute the mutant's unit; tests is
        [] for a whole file."""
        rows, found = self.record.rows(job), {}
        for key, row in rows.items():
            if mutant.unit in row["hit"]:
                path, _, test = key.partition("::")
                if test and path in found and not found[path][2]:
                    continue
                seconds, tests = (row["seconds"], []) if not test else (found.get(path, (0,))[0] + row["seconds"], [*(found[path][2] if path in found else []), key])
                found[path] = (seconds, path, tests)
        return sorted(found.values())

    def judge(self, folder, mutant):
        """Returns (what detected the mutant or "", number of files that ran, number of files that
        execute it)."""
        (folder / mutant.path).write_text(mutant.planted(self.sources[mutant.path]), "utf-8")
        spent, ran, every = 0, 0, 0
        try:
            for job in self.ORDER:
                python, waiting = _jobs.JOBS[job].python(), self.tests_of(mutant, job)
                every += len(waiting)
                while python and waiting and spent < self.limit:
                    batch = [waiting.pop(0)]
                    while waiting and sum(b[0] for b in batch) + waiting[0][0] < self.BATCH:
                        batch.append(waiting.pop(0))
                    spent, ran = spent + sum(b[0] for b in batch), ran + len(batch)
                    named = [t for _, path, tests in batch for t in tests or [path]]
                    status, what = run_tests(folder, [*_jobs.JOBS[job].args, *named], python)
                    if status not in (0, 5):
                        return f"{job}: {what}", ran, every
        finally:
            (folder / mutant.path).write_text(self.sources[mutant.path], "utf-8")
        return "", ran, every

    def each(self, folder, numbers):
        """Judges the mutants with these numbers (default: all) and prints the results."""
        killed = unseen = 0
        for n in numbers or range(len(self.mutants)):
            mutant, start = self.mutants[n], time.monotonic()
            how, ran, every = self.judge(folder, mutant)
            killed, unseen = killed + bool(how), unseen + (not every)
            number, before, after = mutant.line(self.sources[mutant.path])
            said = f"killed by {how}" if how else f"SURVIVES {ran} of {every} files" if every else "is executed by no test"
            print(f"{n:3} {mutant.path}:{number}: {before[:70]} -> {after[:70]}\n    {said} ({time.monotonic() - start:.0f} s)", flush=True)
        print(f"{killed} of {len(numbers or self.mutants)} killed, {unseen} executed by no test")
        return 0

    def left_out(self, folder):
        """Plants all mutants that affect few rows, and runs the tests that none of them affects."""
        jobs = [job for job in _jobs.JOBS if not _jobs.JOBS[job].whole and _jobs.JOBS[job].python()]
        rows = {(job, key): row["hit"] for job in jobs for key, row in self.record.rows(job).items()}
        planted, texts = [], dict(self.sources)
        # last of a file first, so that the offsets of the others stay valid
        for mutant in sorted(self.mutants, key=lambda m: (m.path, -m.start)):
            # (code that no test executes affects all tests that load its module)
            if 0 < sum(mutant.unit in hit for hit in rows.values()) <= len(rows) * self.FEW:
                texts[mutant.path] = mutant.planted(texts[mutant.path])
                planted.append(mutant)
        for path, text in texts.items():
            (folder / path).write_text(text, "utf-8")
        failed = 0
        for job in jobs:
            record = _affected.Record.load(root=folder)
            choice = record.select(job, _affected.packages(_jobs.JOBS[job].python()))
            if choice.unknown:
                raise SystemExit(f"{job}: {choice.unknown}")
            named = []
            for path in _jobs.JOBS[job].files():
                if choice.reason(path):
                    continue
                own = record.keys_of(job, path)
                out = [key for key in own if not choice.reason(key)]
                named += [path] if out == own else out
            print(f"{job}: {len(planted)} mutants; running {len(named)} files and tests that none of them affects", flush=True)
            if named:
                status, what = run_tests(folder, [*_jobs.JOBS[job].args, "-n", "2", "--dist", "worksteal", *named], _jobs.JOBS[job].python(), stop=False)
                print(f"    {what}", flush=True)
                failed += status not in (0, 5)
        return 1 if failed else 0


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("numbers", nargs="*", type=int, help="indices of the mutations, from 0; default: all")
    parser.add_argument("--whole", action="store_true", help="complete default run for mutations that survive the tests named with them")
    parser.add_argument("--random", type=int, metavar="N", help="use N mutations drawn from the entire package instead")
    parser.add_argument("--seed", type=int, default=1, help="seed of --random")
    parser.add_argument("--limit", type=int, default=120, help="with --random: recorded seconds of the tests that run for one mutation (default 120)")
    parser.add_argument("--left-out", action="store_true", help="with --random: run the tests that are not affected, which must pass")
    options = parser.parse_args(argv)
    if options.random:
        drawn = Random(options.random, options.seed, options.limit)
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder) / "tree"
            copy_tree(tree)
            return drawn.left_out(tree) if options.left_out else drawn.each(tree, options.numbers)
    numbers = options.numbers or range(len(MUTATIONS))
    for n in numbers:
        planted(ROOT, MUTATIONS[n])  # detects a missing line before anything runs
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "tree"
        copy_tree(tree)
        status, what = run_tests(tree, sorted({t for n in numbers for t in MUTATIONS[n].tests.split()}))
        if status:
            print(f"the tests fail without a mutation, so they cannot judge mutations: {what}")
            return 2
        killed = 0
        for n in numbers:
            m, start = MUTATIONS[n], time.monotonic()
            how = judge(tree, m, options.whole)
            killed += how is not None
            said = f"killed: {how}" if how is not None else "SURVIVES" + (f": {m.note}" if m.note else "")
            print(f"{n:2} {m.file}: {m.new.splitlines()[-1].strip()}\n   {said} ({time.monotonic() - start:.0f} s)", flush=True)
    least = WANTED if len(numbers) == len(MUTATIONS) else len(numbers)
    print(f"{killed} of {len(numbers)} killed")
    return 0 if killed >= least else 1


if __name__ == "__main__":
    sys.exit(main())
