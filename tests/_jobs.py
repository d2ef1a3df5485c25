"""The jobs of CI: which tests each of them runs."""
from typing import NamedTuple

import _units


class Job(NamedTuple):
    """Arguments of pytest for one job. `mark`: the files in which this mark stands are collected; "" for all. `python`: of which environment."""

    args: tuple
    mark: str = ""
    folders: tuple = ()
    whole: bool = True
    environment: str = ".venv-test"

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
    "default": Job(()),
    "slow": Job(("--timeout", "300", "-m", "slow and not dist and not ascend"), mark="slow", whole=False),
    # (-m: the marks do not matter here; -rs names what was skipped, and why.)
    "libraries": Job(("-m", "slow or not slow", "-rfEs", "--require-libraries", str(LIBRARIES)), whole=False, environment=".venv-libraries",
                     folders=("tests/tools/test_libraries.py", "tests/tools/test_libraries_npu.py", "tests/tools/test_language_models.py")),
    "dist": Job(("--timeout", "240", "-m", "dist and not ascend"), mark="dist"),
    "npu": Job(("--device", "npu"), folders=("tests/ops/", "tests/core/", "tests/conformance/")),
    "ascend": Job(("-m", "ascend"), mark="ascend", whole=False),
}
