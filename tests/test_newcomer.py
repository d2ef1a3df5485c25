"""A new user's first hour: README's commands in an empty environment, then docs/getting-started.md
as it is, also on the CANN simulator."""
import os
import re
import shutil
import subprocess

import pytest
from _docs_pages import ROOT, runs

#: Environment variables that any machine provides, including package sources and the user's proxy.
GIVEN = ("PIP_", "SSL_", "HTTP", "http", "LANG", "TMPDIR")


class Newcomer:
    """Runs commands in an empty folder with the environment's Python and an empty home: nothing is
    compiled or cached yet."""

    def __init__(self, folder, python, home):
        self.folder, self.python, self.home = folder, python, home

    def file(self, name, text):
        (self.folder / name).write_text(text, "utf-8")

    def run(self, *args):
        env = {"PATH": f"{self.python.parent}:/usr/local/bin:/usr/bin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8"}
        return subprocess.run([self.python, *args], cwd=self.folder, env=env, capture_output=True, text=True, timeout=600)


def copied(folder):
    """Copies a checkout: the files that git would provide."""
    names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if names.returncode:  # (CI already works on such a copy)
        shutil.copytree(ROOT, folder, symlinks=True, ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "*.egg-info"))
        return
    for name in filter(None, names.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def command(page, containing):
    """Returns the only line in a page's code blocks that contains a text."""
    lines = [x for block in re.findall(r"^```bash\n(.*?)^```$", page, re.M | re.S) for x in block.splitlines() if containing in x]
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.slow
@pytest.mark.ascend
@pytest.mark.timeout(1200)
def test_new_user_succeeds_with_readme_only(tmp_path):
    checkout, work, home = tmp_path / "checkout", tmp_path / "work", tmp_path / "home"
    for folder in (work, home):
        folder.mkdir()
    copied(checkout)
    readme = (checkout / "README.md").read_text("utf-8")
    env = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME") or k.startswith(GIVEN)}

    # Install the package and run the example.
    line = command(readme, "examples/digits.py")
    done = subprocess.run(["bash", "-euc", line], cwd=checkout, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0 and re.search(r"final test accuracy 9[5-9]", done.stdout), done.stdout + done.stderr
    python = checkout / ".venv" / "bin" / "python"
    newcomer = Newcomer(work, python, home)
    found = newcomer.run("-c", "import mindtorch; print(mindtorch.__file__)").stdout
    assert "site-packages" in found and str(checkout / ".venv") in found
    doctor = command(readme, "mindtorch doctor").split()
    assert doctor[0] == "python"
    said = newcomer.run(*doctor[1:])
    assert said.returncode == 0, said.stdout + said.stderr

    # Train, export, load and run on the CANN simulator; then introduce an error and find its layer,
    # which needs PyTorch.
    page = (checkout / "docs" / "getting-started.md").read_text("utf-8")
    pip = re.search(r"`pip (install torch==[\d.]+)`", page)[1]
    done = subprocess.run([python, "-m", "pip", "--quiet", *pip.split()], env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert runs(newcomer, "getting-started.md") == 4
    assert runs(newcomer, "getting-started.md", "standin") == 1
    assert {"fit.pth", "fit.pt", "fit.mindir"} <= {p.name for p in work.iterdir()}
