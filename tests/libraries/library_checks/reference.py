"""Runs the checks of libraries with real PyTorch, and writes its figures into figures.json."""
import json
import os
import subprocess
import sys
import tempfile

from library_checks import CHECKS, figures
from library_checks.report import PATH, installed

_PROGRAM = "from library_checks import run; run({name!r}, hook=False)"


def write(names):
    """Writes PyTorch's figures of these libraries, or of all. A library whose figures differ from
    those of an earlier run of the same version is marked as not comparable."""
    rows = figures._read()["libraries"] if os.path.exists(figures.FILE) else {}
    for name in names or sorted(CHECKS, key=str.lower):
        version = installed(name)
        if version is None:
            continue
        found, before = _with_torch(name), rows.get(name, {})
        wrong = figures.apart(found, before["calls"], 1e-5) if before.get("version") == version and "calls" in before and not isinstance(found, str) else []
        rows[name] = {"version": version}
        if isinstance(found, str):
            rows[name]["why"] = found
        elif wrong and not wrong[0].startswith(figures._OTHER):
            rows[name]["why"] = f"torch's own runs differ: {wrong[0]}"
        else:
            rows[name]["calls"] = found
        print(name, rows[name].get("why") or f"{figures.count(found)} figures", flush=True)
        text = ",\n".join(f"{json.dumps(n)}: {json.dumps(rows[n])}" for n in sorted(rows, key=str.lower))
        with open(figures.FILE, "w", encoding="utf-8") as f:
            f.write('{\n"torch": ' + json.dumps(installed("torch")) + ',\n"libraries": {\n' + text + "\n}\n}\n")


def _with_torch(name):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", _PROGRAM.format(name=name)], cwd=folder, capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": PATH, "HF_HUB_OFFLINE": "1"})
    if done.returncode:
        return "with torch: " + [line for line in done.stderr.splitlines() if line.strip()][-1][:200]
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("FIGURES "))[8:])
