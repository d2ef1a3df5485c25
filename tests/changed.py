"""Runs the tests that a change can affect: `python -m tests.changed`.

    python -m tests.changed                      # the default job; also lists affected tests of others
    python -m tests.changed slow ascend          # these jobs
    python -m tests.changed --list               # names the files and why, runs nothing
    python -m tests.changed npu -- -x -k conv    # arguments after -- go to pytest

A change is any difference from the tree for which tests/recorded.xz was made (`python -m
tests.record`), committed or not. tests/_affected.py defines what counts as affected.
"""
import argparse
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests"))

import _affected  # noqa: E402
import _jobs  # noqa: E402


def split(argv):
    """Splits the command line into (own arguments, arguments after --, which go to pytest)."""
    argv = list(sys.argv[1:] if argv is None else argv)
    at = argv.index("--") if "--" in argv else len(argv)
    return argv[:at], argv[at + 1:]


class Plan:
    """What has to run of a job: its test files, those that are left out, and their recorded
    durations."""

    def __init__(self, job, record, full=False):
        self.job, self.record = job, record
        self.every = _jobs.JOBS[job].files()
        self.python = _jobs.JOBS[job].python()
        self.choice = None if full or record is None or self.python is None else record.select(job, _affected.packages(self.python))
        self.files = self.every if self.choice is None else self.choice.files(self.every)

    def seconds(self, files):
        return sum(self.record.seconds(self.job, f) for f in files) if self.record else 0

    def __str__(self):
        if self.python is None:
            return f"{self.job}: its environment does not exist (create it with .ci/libraries environment)"
        whole = f"{len(self.files)} of {len(self.every)} files"
        if self.record is None:
            return f"{self.job}: {whole}, since there is no record (python -m tests.record)"
        left = [f for f in self.every if f not in self.files]
        why = f", since {self.choice.unknown}" if self.choice and self.choice.unknown else ""
        return f"{self.job}: {whole} affected{why}, at most {self.seconds(self.files):.0f} s of one processor; left out: {len(left)} files, {self.seconds(left):.0f} s"

    def run(self, workers, more):
        """Runs the plan; returns pytest's exit status."""
        if not self.files:
            print(f"tests.changed: no test of {self.job} is affected", flush=True)
            return 0
        selected = ["--affected", self.job] if self.choice is not None else []
        status = subprocess.run(_jobs.JOBS[self.job].command(workers, [*more, *selected], self.files), cwd=ROOT).returncode
        if status == 5 and self.choice is not None:
            print(f"tests.changed: no test of {self.job} is affected", flush=True)
            return 0
        return status


def main(argv=None):
    argv, more = split(argv)
    parser = argparse.ArgumentParser(prog="python -m tests.changed", description=__doc__.splitlines()[0])
    parser.add_argument("jobs", nargs="*", choices=[[], *_jobs.JOBS], help="default: the default job")
    parser.add_argument("--list", action="store_true", help="name the files and why they are affected, run nothing")
    parser.add_argument("--full", action="store_true", help="run all tests of the jobs, affected or not")
    parser.add_argument("-n", default="2", help="worker processes")
    a = parser.parse_args(argv)
    record, status = _affected.Record.load(), 0
    for job in a.jobs or ["default"]:
        plan = Plan(job, record, a.full)
        print(plan, flush=True)
        if a.list:
            for f in plan.files if plan.choice else ():
                why = plan.choice.reason(f) or "; ".join(f"{k.partition('::')[2]}: {plan.choice.reason(k)}" for k in record.keys_of(job, f) if plan.choice.reason(k))
                print(f"  {f}: {why[:200]}")
        elif plan.python is None:
            status = status or 4
        else:
            status = plan.run(a.n, more) or status
    if not a.jobs:
        for job in _jobs.JOBS:
            if job != "default":
                print(Plan(job, record))
        print("python -m tests.changed JOB... runs those")
    return status


if __name__ == "__main__":
    sys.exit(main())
