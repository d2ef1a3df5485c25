"""``python -m mindtorch doctor --libraries``: what runs of the libraries for torch that are installed."""
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version

import mindtorch
from mindtorch.tools._library_checks import CHECKS

_PROGRAM = "from mindtorch.tools._library_checks import run; run({name!r})"
_LIMIT = 300          # seconds


class Outcome:
    """What came of one library's check."""

    def __init__(self, name, release, state, what, seconds):
        self.name, self.release, self.state, self.what, self.seconds = name, release, state, what, seconds


def installed(name):
    """A package's version, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _missing(needs):
    return [n for n in needs if installed(n) is None and importlib.util.find_spec(n.replace("-", "_")) is None]


def check(name):
    """Runs one check in a process of its own."""
    fn, needs = CHECKS[name]
    release = installed(name)
    if release is None:
        return Outcome(name, "", "absent", "not installed", 0)
    missing = _missing(needs)
    if missing:
        return Outcome(name, release, "absent", f"needs {', '.join(missing)}", 0)
    root = os.path.dirname(os.path.dirname(os.path.abspath(mindtorch.__file__)))
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH")) if p), HF_HUB_OFFLINE="1")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run([sys.executable, "-W", "ignore", "-c", _PROGRAM.format(name=name)], env=env, cwd=folder, capture_output=True,
                                  text=True, timeout=_LIMIT)
        except subprocess.TimeoutExpired:
            return Outcome(name, release, "fails", f"not done in {_LIMIT} s", _LIMIT)
    seconds = time.monotonic() - start
    if done.returncode == 0:
        return Outcome(name, release, "runs", fn.__doc__, seconds)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    error = next((line for line in reversed(lines) if not line.startswith(" ")), lines[-1] if lines else f"exit status {done.returncode}")
    needed = re.search(r"No module named .(?!torch\b)", error) is not None       # a module of torch itself that is missing is our failure
    return Outcome(name, release, "absent" if needed else "fails", error[:200], seconds)


def report(names, markdown=None):
    """Prints one line for each library; 1 if one of them fails."""
    unknown = [n for n in names if n not in CHECKS]
    if unknown:
        print(f"no check for {', '.join(unknown)}; there are: {', '.join(sorted(CHECKS))}")
        return 2
    outcomes = []
    for name in names or sorted(CHECKS, key=str.lower):
        if not names and installed(name) is None:
            continue
        o = check(name)
        outcomes.append(o)
        print(f"{o.state:7} {o.name} {o.release}: {o.what}" + (f" ({o.seconds:.0f} s)" if o.seconds else ""), flush=True)
    count = {s: sum(o.state == s for o in outcomes) for s in ("runs", "fails", "absent")}
    print(f"{count['runs']} run, {count['fails']} fail, {count['absent']} lack something")
    if markdown:
        with open(markdown, "w") as f:
            f.write(_table(outcomes))
    return 1 if count["fails"] else 0


def _table(outcomes):
    rows = "".join(f"| {o.name} | {o.release} | {'yes' if o.state == 'runs' else o.state} | {o.what} |\n" for o in outcomes)
    return f"""# Libraries

Made by `python -m mindtorch doctor --libraries --markdown docs/libraries.md` with mindtorch {mindtorch.__version__}, MindSpore
{installed('mindspore')} on CPU, Python {sys.version.split()[0]}: each library is installed from PyPI with `pip install --no-deps` (so that pip does not
bring torch) and used unmodified, by a small program of `mindtorch/tools/_library_checks.py` that builds something tiny, runs it forward and backward and
looks at the results.

| library | version | runs | what was run, or what came of it |
|---|---|---|---|
{rows}"""
