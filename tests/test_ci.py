"""CI's scripts: a job that fails, hangs or runs no test never counts as passed."""
import pathlib
import subprocess

import pytest

CI = pathlib.Path(__file__).resolve().parent.parent / ".ci"


@pytest.mark.parametrize("command,passes,said", [
    ("echo '== 3 passed, 2 skipped in 1.50s =='", True, " s: 3 passed, 2 skipped in 1.50s"),
    ("echo '12 passed, 1 warning in 61.03s (0:01:01)'", True, "12 passed, 1 warning in 61.03s"),
    ("echo '== 3 passed in 1.50s =='; exit 1", False, "exit status 1"),
    ("echo '== 1 failed, 3 passed in 1.50s =='; exit 1", False, "1 failed, 3 passed in 1.50s"),
    ("echo '== 4 skipped in 0.10s =='", False, "ran no test"),
    ("echo '== 0 passed, 3 skipped in 1.50s =='", False, "ran no test"),
    ("echo '== 10 deselected in 0.10s =='; exit 5", False, "ran no test"),
    ("echo nothing", False, "ran no test"),
    ("echo '== 3 passed in 1.50s =='; sleep 60", False, "not done in 1 s"),
    ("echo 'tests.changed: no test of some is affected'", True, "no test of some is affected"),
    ("echo 'tests.changed: no test of other is affected'", False, "ran no test"),
    ("echo 'tests.changed: no test of some is affected'; echo more", False, "ran no test"),
    ("echo 'tests.changed: no test of some is affected'; exit 1", False, "exit status 1"),
])
def test_job(tmp_path, command, passes, said):
    done = subprocess.run([CI / "job", "some", "1" if "sleep" in command else "30", tmp_path, "bash", "-c", command], timeout=100)
    assert (done.returncode == 0) is passes
    verdict = (tmp_path / "some.result").read_text()
    assert verdict.startswith("some: ok, " if passes else "some: ") and said in verdict and ("FAILED" in verdict) is not passes
    assert (tmp_path / "some.log").read_text()


@pytest.mark.parametrize("name", ["run", "job", "libraries", "matrix"])
def test_scripts_are_sound(name):
    done = subprocess.run(["bash", "-n", CI / name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_unknown_option_runs_nothing():
    done = subprocess.run([CI / "run", "--some"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 2 and done.stdout == "" and "usage" in done.stderr
