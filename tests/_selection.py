"""Selection and order of the collected tests: tests/conftest.py's part for `--affected`, for
workers, and for `--shuffle`."""
import functools
import os
import random

import _affected
import _jobs


def job_of(config):
    """Returns the job whose marks or device match pytest's arguments, else the default job."""
    for name, job in _jobs.JOBS.items():
        given = dict(zip(job.args, job.args[1:]))
        if given.get("-m") == config.option.markexpr or "--device" in given and given["--device"] == config.getoption("--device"):
            return name
    return "default"


def arrange(config, items):
    """Deselects the tests that no change affects, and orders the others."""
    record, job = _affected.Record.load(), job_of(config)
    if config.getoption("--affected") and record is not None:
        choice = record.select(config.getoption("--affected"), _affected.packages())
        left = [item for item in items if not choice.of_test(item.nodeid)]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if choice.of_test(item.nodeid)]
    # A fork copies the page tables. In a process that has run the other tests (2.9 GB) this costs
    # several times as much (tests/facade/test_data.py took 154 s of the default run), so forking
    # tests run first. With workers, the slowest files go next, so that none of them is still
    # running when the other workers are idle.
    workers = record is not None and "PYTEST_XDIST_WORKER" in os.environ
    seconds = functools.cache(lambda path: record.seconds(job, path) if workers else 0)
    items.sort(key=lambda item: (item.get_closest_marker("forks") is None, -seconds(item.nodeid.partition("::")[0])))
    if config.getoption("--shuffle") is not None:
        _shuffle(items, random.Random(config.getoption("--shuffle")))


def _shuffle(items, drawn):
    """Shuffles the files, and the tests within each; tests of one file stay together because
    fixtures require it."""
    files = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    order = list(files)
    drawn.shuffle(order)
    for tests in files.values():
        drawn.shuffle(tests)
    items[:] = [item for path in order for item in files[path]]
