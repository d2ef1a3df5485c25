"""Finds flaky tests: runs a job five times in shuffled order while other processes load the cores.

    python -m tests.shuffle                      # the default job five times, next to two busy processes
    python -m tests.shuffle slow --runs 3 --load 0 --seed 40

A test that fails in a run is printed with the seed; `pytest --shuffle SEED` reproduces that order.
"""
import argparse
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests"))

import _jobs  # noqa: E402
import changed  # noqa: E402


def once(job, seed, load, more):
    """Runs the job once; returns (exit status, names of the failed tests, pytest's last line, its
    output)."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load)]
    try:
        command = _jobs.JOBS[job].command(2, ["-q", "--shuffle", str(seed), *more])
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
    lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or [""]
    return done.returncode, failed, lines[-1], done.stdout


def main(argv=None):
    argv, more = changed.split(argv)
    parser = argparse.ArgumentParser(prog="python -m tests.shuffle", description=__doc__.splitlines()[0])
    parser.add_argument("job", nargs="?", default="default", choices=list(_jobs.JOBS))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first run; each further run uses the next one")
    parser.add_argument("--load", type=int, default=2, help="number of busy processes that run at the same time")
    parser.add_argument("--log", metavar="FOLDER", help="save the output of pytest for each failed run")
    a = parser.parse_args(argv)
    failures = 0
    for seed in range(a.seed, a.seed + a.runs):
        status, failed, closing, text = once(a.job, seed, a.load, more)
        failures += status != 0
        print(f"{a.job} --shuffle {seed}: {closing}", flush=True)
        for name in failed:
            print(f"  {name}", flush=True)
        if a.log and status:
            os.makedirs(a.log, exist_ok=True)
            with open(os.path.join(a.log, f"{a.job}-{seed}.txt"), "w") as f:
                f.write(text)
    print(f"{a.runs - failures} of {a.runs} runs without a failure")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
