"""Records which units of the source each test executes, in tests/recorded.xz for `tests.changed`.

    python -m tests.record                # every job whose environment exists; twice the jobs' own time
    python -m tests.record slow ascend    # some jobs
    python -m tests.record --stale        # only the files whose record a change has made doubtful

Each test file runs in a fresh process under coverage.py, and so does every Python process that its
tests start. Code executed by the file's own process counts for all tests of the file, because
through caches and module state one test may execute code whose effects the next one uses. Code
executed by a process that a test starts counts for that test. A test that fails, is skipped, or
starts a process that leaves no record is marked: it always runs.
"""
import argparse
import ast
import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import _affected  # noqa: E402
import _jobs  # noqa: E402
import _units  # noqa: E402

PTH = "tests_recorder.pth"
#: Starts the recorder in every interpreter of the environment while a record is made.
LINE = ("import os; os.environ.get('TESTS_RECORD_FOLDER') and os.environ.get('TESTS_RECORD_CODE') and "
        "exec(compile(open(os.environ['TESTS_RECORD_CODE']).read(), os.environ['TESTS_RECORD_CODE'], 'exec'), "
        "s := {'__file__': os.environ['TESTS_RECORD_CODE'], '__name__': '_recorder'}) is None and s['begin']()\n")
#: Distinguishes the processes started by a process, by the event that began their record.
KINDS = {"python": "start", "fork": "fork"}
LIMIT = 1500


def run(python, job, path):
    """Runs one test file; returns (seconds, {test: outcome}, started processes, their records,
    pytest's exit status, output)."""
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, TESTS_RECORD_FOLDER=folder, TESTS_RECORD_CODE=str(ROOT / "tests/_recorder.py"), TESTS_RECORD_FOR="", PYTHONDONTWRITEBYTECODE="1")
        start = time.monotonic()
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests._record_plugin", *_jobs.JOBS[job].args, "--timeout", "600", path]
        try:
            done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
            status, said = done.returncode, done.stdout[-3000:] + done.stderr[-1000:]
        except subprocess.TimeoutExpired:
            status, said = -1, f"not done in {LIMIT} s"
        seconds = time.monotonic() - start
        outcomes = pathlib.Path(folder, "outcomes")
        outcomes = json.loads(outcomes.read_text()) if outcomes.exists() else {}
        started = {p.stem: json.loads(p.read_text()) for p in pathlib.Path(folder).glob("*.start")}
        ended = [dict(json.loads(p.read_text()), name=p.stem) for p in pathlib.Path(folder).glob("*.json")]
        return seconds, outcomes, started, ended, status, said


def shares_processes(path):
    """True if a test of the file may reuse results of a process started by another test: the file
    keeps values at module level."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    kept = any(isinstance(node, ast.Global) or (isinstance(node, (ast.Name, ast.Attribute)) and getattr(node, "id", getattr(node, "attr", "")) in ("cache", "lru_cache"))
               for node in ast.walk(tree))
    empty = (ast.Dict, ast.List, ast.Call)
    return kept or any(isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, empty) and ast.unparse(node.value) in ("{}", "[]", "set()", "dict()", "list()")
                       for node in tree.body)


class Sources:
    """The units of this tree's Python files."""

    def __init__(self):
        self.files = {path: _units.read(path) for path in _units.files()}
        self.units, self.ranges = {}, {}
        for path, data in self.files.items():
            if path.endswith(".py"):
                self.units[path], self.ranges[path] = _units.units(data.decode("utf-8"), path)

    def hit(self, record, test_file):
        """Returns the units that a process of a test file executed, the files it opened and the
        folders it listed."""
        own = test_file == "tests/test_changed.py"
        found = {f"read:{p}" for p in record["opened"] if p in self.files and (own or p not in _units.SELECTION)}
        found |= {f"list:{p}" for p in record["listed"]}
        for path, lines in record["lines"].items():
            if path in self.ranges and (own or path not in _units.SELECTION):
                found |= _units.units_of_lines(self.ranges[path], lines, path) | {path}
        return found


def rows_of(path, result, sources):
    """Returns {key: row} of one test file: one row for the file, and one for each test that starts
    processes or always runs."""
    seconds, outcomes, started, ended, status, said = result
    own = {"seconds": round(seconds, 1), "hit": set(), "always": ""}
    rows = {path: own}
    if status not in (0, 1, 5):  # (5: the job runs none of the file's tests)
        own["always"] = f"recording failed with status {status}: {said[-300:]}"
    tests = {test: o for test, (o, _) in outcomes.items()}

    def row(test):
        if not test or test not in tests or shared:
            return own
        if test not in rows:
            rows[test] = {"seconds": round(outcomes[test][1], 1), "hit": set(), "always": ""}
        return rows[test]

    shared = shares_processes(path)
    names = {r["name"] for r in ended}
    expected = collections.Counter()
    for r in ended:
        row(r["test"])["hit"] |= sources.hit(r, path)
        if not r["traced"]:
            row(r["test"])["always"] = f"another trace function took the recorder's place: {r['tracer']}"
        for test, what in r["started"]:
            if what in KINDS:
                expected[r["pid"], KINDS[what], test] += 1
            else:
                row(test)["always"] = f"starts {what}, which is not recorded"
    for name, r in started.items():
        expected[r["parent"], "start", r["test"]] -= 1
        if name not in names:
            row(r["test"])["always"] = f"a process ended without a record: {' '.join(r['argv'])[:80]}"
    for r in ended:
        if r["kind"] == "fork":
            expected[r["parent"], "fork", r["test"]] -= 1
    for (_, kind, test), missing in expected.items():
        if missing > 0:
            row(test)["always"] = f"{missing} of its processes ({kind}) left no record"
    for test, outcome in tests.items():
        if outcome not in ("passed", "xfailed"):
            rows.setdefault(test, {"seconds": round(outcomes[test][1], 1), "hit": set(), "always": ""})["always"] = f"{outcome} while it was recorded"
    own["tests"] = len(tests)
    return rows


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m tests.record", description=__doc__.splitlines()[0])
    parser.add_argument("jobs", nargs="*", choices=[[], *_jobs.JOBS], help="jobs to record; default: all whose environment exists")
    parser.add_argument("--stale", action="store_true", help="only files with a test that a change since their record affects")
    parser.add_argument("--files", nargs="+", help="only these test files")
    parser.add_argument("-n", type=int, default=2, help="number of parallel processes")
    parser.add_argument("--output", default=str(_affected.FILE))
    a = parser.parse_args(argv)
    pythons = {job: _jobs.JOBS[job].python() for job in a.jobs or _jobs.JOBS}
    for job in [job for job, python in pythons.items() if python is None]:
        print(f"{job}: left out, its environment {_jobs.JOBS[job].environment} is not there")
        del pythons[job]
    old = _affected.Record.load(a.output)
    sources = Sources()
    work = []
    for job, python in pythons.items():
        files = _jobs.JOBS[job].files()
        if a.files:
            files = [f for f in files if f in a.files]
        if a.stale and old:
            files = old.select(job, _affected.packages(python)).files(files)
        work += [(job, f) for f in files]
    work.sort(key=lambda w: -(old.seconds(*w) if old else 0))
    # Rows that are not recorded now are retained: other jobs, and with --stale and --files the
    # other files.
    new = {job: old.rows(job) if old and (job not in pythons or a.stale or a.files) else {} for job in _jobs.JOBS}
    folders = {subprocess.run([p, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True, check=True).stdout.strip() for p in set(pythons.values())}
    for folder in folders:
        pathlib.Path(folder, PTH).write_text(LINE)
    try:
        subprocess.run([sys.executable, "-m", "compileall", "-q", "-j", str(a.n), "mindtorch", "tests", "examples", "benchmarks"], cwd=ROOT, check=False)
        with concurrent.futures.ThreadPoolExecutor(a.n) as pool:
            running = {pool.submit(run, pythons[job], job, path): (job, path) for job, path in work}
            for done in concurrent.futures.as_completed(running):
                job, path = running[done]
                rows = rows_of(path, done.result(), sources)
                for key in [k for k in new[job] if k == path or k.startswith(f"{path}::")]:
                    del new[job][key]
                new[job].update(rows)
                always = sum(bool(r["always"]) for r in rows.values())
                print(f"{job} {path}: {done.result()[0]:.0f} s, {rows.get(path, {}).get('tests', 0)} tests, {always} marked", flush=True)
                if rows and rows[path]["always"]:
                    print(f"    {rows[path]['always']}", flush=True)
    finally:
        for folder in folders:
            pathlib.Path(folder, PTH).unlink()
    versions = {**(old.packages if old else {}), **{job: _affected.packages(python) for job, python in pythons.items()}}
    _affected.save(a.output, sources.files, sources.units, new, versions)
    print(f"{a.output}: {os.path.getsize(a.output) / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
