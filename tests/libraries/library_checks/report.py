"""Runs the checks of installed libraries on the cpu and npu devices, and writes the table of
results."""
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version

import mindtorch
from library_checks import CHECKS, figures

_PROGRAM = "from library_checks import run; run({name!r}, {device!r})"
PATH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LIMIT = 300          # seconds


class Outcome:
    """Result of one library's check on one device.

        state     runs, fails, absent (the library or one of its requirements is missing), or apart
                  (it ran, but executed nothing on the device)
        on_host   primitives that the host computed for the device
        compared  number of its figures that match PyTorch's run, or the reason why none was
                  compared
    """

    def __init__(self, name, release, state, what, seconds, device="cpu", on_host=(), compared=""):
        self.name, self.release, self.state, self.what, self.seconds = name, release, state, what, seconds
        self.device, self.on_host, self.compared = device, on_host, compared

    def comparison(self):
        """Describes the comparison with PyTorch."""
        if not self.compared:
            return ""
        if isinstance(self.compared, str):
            return f"not compared: {self.compared}"
        return f"{self.compared} figure{'s' * (self.compared != 1)} as torch's"

    def cell(self):
        """Returns the text of the device's table cell."""
        if self.state == "runs":
            ran = f"yes, {self.comparison()}" if self.compared else "yes"
            return f"{ran}; on the host: {', '.join(self.on_host)}" if self.on_host else ran
        return {"absent": "absent", "apart": "runs nothing on the device"}.get(self.state) or f"no: {self.what}"


def installed(name):
    """Returns a package's version, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _missing(needs):
    return [n for n in needs if installed(n) is None and importlib.util.find_spec(n.replace("-", "_")) is None]


def check(name, device="cpu"):
    """Runs one check in a separate process."""
    fn, needs = CHECKS[name]
    release = installed(name)
    if release is None:
        return Outcome(name, "", "absent", "not installed", 0, device)
    missing = _missing(needs)
    if missing:
        return Outcome(name, release, "absent", f"needs {', '.join(missing)}", 0, device)
    root = os.path.dirname(os.path.dirname(os.path.abspath(mindtorch.__file__)))
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in (root, PATH, os.environ.get("PYTHONPATH")) if p), HF_HUB_OFFLINE="1", MINDTORCH_NPU_RANDOM="host")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run([sys.executable, "-W", "ignore", "-c", _PROGRAM.format(name=name, device=device)], env=env, cwd=folder, capture_output=True,
                                  text=True, timeout=_LIMIT)
        except subprocess.TimeoutExpired:
            return Outcome(name, release, "fails", f"not finished in {_LIMIT} s", _LIMIT, device)
    seconds = time.monotonic() - start
    if done.returncode == 0:
        return _done(name, release, fn.__doc__, seconds, device, done.stdout)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    error = next((line for line in reversed(lines) if not line.startswith(" ")), lines[-1] if lines else f"exit status {done.returncode}")
    # a missing module of torch itself is our failure
    needed = re.search(r"No module named .(?!torch\b)", error) is not None
    return Outcome(name, release, "absent" if needed else "fails", error[:200], seconds, device)


def _done(name, release, what, seconds, device, stdout):
    told = {word: json.loads(rest) for word, _, rest in (line.partition(" ") for line in stdout.splitlines()) if word in ("ASKED", "FIGURES")}
    asked = {"kernels": ["the host's"], "host": []} if device == "cpu" else told.get("ASKED")
    theirs = figures.expected(name, release)
    if asked is None or (not isinstance(theirs, str) and "FIGURES" not in told):
        return Outcome(name, release, "fails", "the process ended before its check did", seconds, device)
    if not isinstance(theirs, str):
        wrong = figures.apart(told["FIGURES"], theirs, figures.BOUND if device == "cpu" else figures.DEVICE_BOUND)
        if wrong:
            return Outcome(name, release, "fails", f"{wrong[0]}{f' (and {len(wrong) - 1} more)' if wrong[1:] else ''}", seconds, device, asked["host"])
        theirs = figures.count(theirs) or ""
    return Outcome(name, release, "runs" if asked["kernels"] or asked["host"] else "apart", what, seconds, device, asked["host"], theirs)


def report(names, markdown=None, devices=("cpu",)):
    """Prints one line for each library and device. Returns 1 if one of them fails."""
    unknown = [n for n in names if n not in CHECKS]
    if unknown:
        print(f"no check for {', '.join(unknown)}; there are: {', '.join(sorted(CHECKS))}")
        return 2
    places = {d: _place(d) for d in devices}
    if None in places.values():
        print("there is no npu device: MindSpore's device target is not Ascend (MINDTORCH_NPU=cpu uses its CPU target instead)")
        return 2
    outcomes = []
    for name in names or sorted(CHECKS, key=str.lower):
        if not names and installed(name) is None:
            continue
        for device in places:
            o = check(name, device)
            outcomes.append(o)
            on_host = f"; on the host: {', '.join(o.on_host)}" if o.on_host else ""
            compared = f"; {o.comparison()}" if o.state == "runs" and o.compared else ""
            print(f"{o.state:7} {o.name} {o.release}{'' if device == 'cpu' else f' on {device}'}: {o.what}{compared}{on_host}"
                  + (f" ({o.seconds:.0f} s)" if o.seconds else ""), flush=True)
            if markdown:
                # (immediately, so that an interrupted run keeps its results)
                _write(markdown, outcomes, places)
    for device in places:
        count = {s: sum(o.state == s and o.device == device for o in outcomes) for s in ("runs", "fails", "absent", "apart")}
        print(f"{'' if device == 'cpu' else f'on {device}: '}{count['runs']} run, {count['fails']} fail, {count['absent']} absent"
              + (f", {count['apart']} run nothing on the device" if count["apart"] else ""))
    return 1 if any(o.state == "fails" for o in outcomes) else 0


def _place(device):
    """Describes a device for the table, or returns None if it does not exist."""
    if device == "cpu":
        return "the cpu device"
    import mindtorch.torch  # noqa: F401  (which registers the npu)
    from mindtorch.core.device.device_dispatch import DEVICES
    npu = DEVICES.get(device)
    if npu is None:
        return None
    return "MindSpore's CPU target instead of an NPU (MINDTORCH_NPU=cpu)" if npu.target == "CPU" else f"MindSpore's {npu.target} target"


# ------------------------------------------------------------------ the table
_COLUMNS = ("library", "version", "cpu", "npu", "what was run, or what is missing")


def _heading(place):
    return f"""# Libraries

Generated by `python tests/libraries/check.py --device cpu npu --markdown docs/libraries.md` with mindtorch {mindtorch.__version__}, MindSpore
{installed('mindspore')}, NumPy {installed('numpy')}, Python {sys.version.split()[0]}. Each library is installed from PyPI with
`pip install --no-deps` (so that pip does not install torch) and used unmodified. A small program of `tests/libraries/library_checks/`
builds something tiny, runs it forward and backward and checks the results, in a separate process.

"N figures as torch's": the same program was run with real torch {figures.release()} and the same seed. The local variables of its functions when they
return (losses, parameters, gradients, results: a tensor as the mean of its absolute values) are equal here
within {figures.BOUND:g}, relative to torch's figure or
to {figures.SMALL:g}, whichever is larger (on npu within {figures.DEVICE_BOUND:g}, with `MINDTORCH_NPU_RANDOM=host`). Torch's figures are in
`tests/libraries/library_checks/figures.json`, which `python tests/libraries/check.py --torch` writes.

In the column npu the same program runs with the [npu device](npu.md) as its default device, or as the device that is passed to the library:
{place}.
"on the host" lists the primitives that had no kernel there, so that the host computed them, with copies there and back.

The command writes the cells that it measures; cells of earlier runs with the same versions stay. An empty cell was not measured.
"""


def _write(path, outcomes, places):
    """Writes the table with these outcomes. If the existing page has the same heading, its other
    cells are preserved: other libraries, and the other device of the same library versions."""
    old = ""
    if os.path.exists(path):
        with open(path) as f:
            old = f.read()
    kept = re.search(r":\n(MindSpore's .* target.*)\.\n", old)
    heading = _heading(places.get("npu") or (kept.group(1) if kept else "not measured"))
    rows = _rows(old) if old.startswith(heading) else {}
    for o in outcomes:
        row = rows.setdefault(o.name, [o.name, o.release, "", "", ""])
        if row[1] != o.release:
            row[1:] = [o.release, "", "", ""]
        row[_COLUMNS.index(o.device)] = _plain(o.cell())
        row[4] = _plain(o.what if o.state == "absent" else CHECKS[o.name][0].__doc__)
    lines = [_COLUMNS, ["---"] * len(_COLUMNS), *(rows[n] for n in sorted(rows, key=str.lower))]
    with open(path, "w") as f:
        f.write(heading + "\n" + "".join("| " + " | ".join(line) + " |\n" for line in lines))


def _rows(page):
    cells = [line[2:-2].split(" | ") for line in page.splitlines() if line.startswith("| ")][2:]
    return {row[0]: row for row in cells}


def _plain(text):
    return text.replace("|", "&#124;").replace("\n", " ")
