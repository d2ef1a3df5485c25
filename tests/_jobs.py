"""CI jobs: the tests of each job, and the command that runs them."""
import sys
from typing import NamedTuple

import _units


class Job(NamedTuple):
    """Arguments of pytest for one job.

        mark         collect only the files that contain this mark; "" for all
        folders      collect only these folders and files; () for all
        whole        CI runs all tests of the job, not only the affected ones
        environment  the virtual environment in which it runs
        dist         distribution by pytest-xdist: by file if fixtures are expensive, else work stealing
    """

    args: tuple
    mark: str = ""
    folders: tuple = ()
    whole: bool = True
    environment: str = ".venv-test"
    dist: str = "worksteal"

    def python(self):
        """Returns the job's interpreter, or None if the job's own environment does not exist."""
        if self.environment == ".venv-test":
            return sys.executable
        path = _units.ROOT / self.environment / "bin" / "python"
        return str(path) if path.exists() else None

    def command(self, workers, more=(), files=None):
        """Returns the pytest command that runs the job, or some of its files."""
        every = self.files()
        files = every if files is None else files
        named = files if len(files) < len(every) or self.mark or self.folders else []
        return [self.python(), "-m", "pytest", *self.args, "-n", str(workers), "--dist", self.dist, *more, *named]

    def files(self):
        """Returns the test files that can have tests of the job, relative to the root."""
        found = []
        for path in sorted((_units.ROOT / "tests").rglob("test_*.py")):
            name = path.relative_to(_units.ROOT).as_posix()
            if self.folders and not name.startswith(self.folders):
                continue
            if not self.mark or f"mark.{self.mark}" in path.read_text("utf-8"):
                found.append(name)
        return found


#: marks for which `pytest -m MARK` collects only the files that contain the mark
MARKS = ("smoke", "slow", "dist", "ascend", "forks")
#: minimum number of installed libraries for the job to be meaningful
LIBRARIES = 70
JOBS = {
    "default": Job((), dist="loadfile"),
    "slow": Job(("--timeout", "300", "-m", "slow and not dist and not ascend"), mark="slow", whole=False),
    # The -m expression overrides the marks; -rs names what was skipped, and why.
    "libraries": Job(("-m", "slow or not slow", "-rfEs", "--require-libraries", str(LIBRARIES)), whole=False, environment=".venv-libraries",
                     folders=("tests/libraries/test_libraries.py", "tests/libraries/test_libraries_npu.py", "tests/libraries/test_language_models.py")),
    "dist": Job(("--timeout", "240", "-m", "dist and not ascend"), mark="dist"),
    "npu": Job(("--device", "npu"), folders=("tests/ops/", "tests/core/", "tests/conformance/")),
    "ascend": Job(("-m", "ascend"), mark="ascend", whole=False, dist="loadfile"),
}
