"""The jobs of CI: which tests each of them runs, and by which command."""
import sys
from typing import NamedTuple

import _units


class Job(NamedTuple):
    """Arguments of pytest for one job.

    mark         only the files in which this mark stands are collected; "" for all
    folders      only these folders and files are collected; () for all
    whole        CI runs all of its tests, not the affected ones alone
    environment  the environment in which it runs
    dist         how pytest-xdist gives its tests to workers: by file where fixtures are dear, else half for each, and who is done first takes over
    """

    args: tuple
    mark: str = ""
    folders: tuple = ()
    whole: bool = True
    environment: str = ".venv-test"
    dist: str = "worksteal"

    def python(self):
        """The interpreter: this one, but for the job that has an environment of its own; None where that is not there."""
        if self.environment == ".venv-test":
            return sys.executable
        path = _units.ROOT / self.environment / "bin" / "python"
        return str(path) if path.exists() else None

    def command(self, workers, more=(), files=None):
        """Runs the job, or some of its files, by pytest."""
        every = self.files()
        files = every if files is None else files
        named = files if len(files) < len(every) or self.mark or self.folders else []
        return [self.python(), "-m", "pytest", *self.args, "-n", str(workers), "--dist", self.dist, *more, *named]

    def files(self):
        """The test files in which the job can have tests, relative to the root."""
        found = []
        for path in sorted((_units.ROOT / "tests").rglob("test_*.py")):
            name = path.relative_to(_units.ROOT).as_posix()
            if self.folders and not name.startswith(self.folders):
                continue
            if not self.mark or f"mark.{self.mark}" in path.read_text("utf-8"):
                found.append(name)
        return found


#: marks of which `pytest -m MARK` collects no more than the files in which they stand
MARKS = ("smoke", "slow", "dist", "ascend", "forks")
#: so many libraries have to be installed for their job, or it says too little
LIBRARIES = 70
JOBS = {
    "default": Job((), dist="loadfile"),
    "slow": Job(("--timeout", "300", "-m", "slow and not dist and not ascend"), mark="slow", whole=False),
    # (-m: the marks do not matter here; -rs names what was skipped, and why.)
    "libraries": Job(("-m", "slow or not slow", "-rfEs", "--require-libraries", str(LIBRARIES)), whole=False, environment=".venv-libraries",
                     folders=("tests/tools/test_libraries.py", "tests/tools/test_libraries_npu.py", "tests/tools/test_language_models.py")),
    "dist": Job(("--timeout", "240", "-m", "dist and not ascend"), mark="dist"),
    "npu": Job(("--device", "npu"), folders=("tests/ops/", "tests/core/", "tests/conformance/")),
    "ascend": Job(("-m", "ascend"), mark="ascend", whole=False, dist="loadfile"),
}
