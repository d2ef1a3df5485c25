"""Pytest plugin of tests/record.py: tells the recorder which test is running, and writes each
outcome."""
import json
import os
import time

import pytest

_outcomes = {}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    os.environ["TESTS_RECORD_FOR"] = item.nodeid
    start = time.monotonic()
    try:
        return (yield)
    finally:
        os.environ["TESTS_RECORD_FOR"] = ""
        _outcomes.setdefault(item.nodeid, ["error", 0])[1] = time.monotonic() - start


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """Assigns processes that a module- or session-scoped fixture starts to all tests."""
    test = os.environ["TESTS_RECORD_FOR"]
    if fixturedef.scope != "function":
        os.environ["TESTS_RECORD_FOR"] = ""
    try:
        return (yield)
    finally:
        os.environ["TESTS_RECORD_FOR"] = test


def pytest_runtest_logreport(report):
    outcome = "xfailed" if getattr(report, "wasxfail", None) is not None and report.skipped else report.outcome
    if report.when == "call" or outcome != "passed":
        _outcomes[report.nodeid] = [outcome, 0]


def pytest_sessionfinish(session):
    with open(os.path.join(os.environ["TESTS_RECORD_FOLDER"], "outcomes"), "w") as f:
        json.dump(_outcomes, f)
