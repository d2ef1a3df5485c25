""".ci/release: each of its checks detects the problem it is meant for."""
import importlib.machinery
import importlib.util
import pathlib
import subprocess
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
_loader = importlib.machinery.SourceFileLoader("release", str(ROOT / ".ci/release"))
release = importlib.util.module_from_spec(importlib.util.spec_from_loader("release", _loader))
_loader.exec_module(release)

GOOD = """# Changelog

## Unreleased

## 1.2.0 - 2026-02-03

### Added

- one
- two

### Fixed

- three

## 1.1.0 - 2026-01-02

### Added

- four
"""


@pytest.fixture
def project(tmp_path):
    """A repository for which all read-only checks pass."""
    files = {"mindtorch/__init__.py": '__version__ = "1.2.0"\n', "pyproject.toml": 'version = { attr = "mindtorch.__version__" }\n', "CHANGELOG.md": GOOD, "mindtorch/a.c": "", "mindtorch/b.cc": "",
             "docs/versions.md": "by mindtorch-1.2.0-py3-none-any.whl\n\n| 3.11 x86_64 | yes |\n"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize("name", ["tree", "version", "changelog", "matrix"])
def test_valid_project_passes_the_checks(project, name):
    assert release.CHECKS[name][0](project)


@pytest.mark.parametrize("check, file, old, new, said", [
    ("tree", "CHANGELOG.md", "one", "1", "1 files are not committed: CHANGELOG.md"),
    ("version", "mindtorch/__init__.py", "1.2.0", "1.3.0", "CHANGELOG.md says 1.2.0, docs/versions.md says 1.2.0"),
    ("version", "mindtorch/__init__.py", "1.2.0", "1.2", "not three numbers"),
    ("version", "docs/versions.md", "1.2.0", "1.1.0", "docs/versions.md says 1.1.0"),
    ("version", "pyproject.toml", "{ attr", "'1.2.0' # {", "version of its own"),
    ("changelog", "CHANGELOG.md", "## Unreleased\n", "## Unreleased\n\n### Fixed\n\n- left\n", "1 entries under Unreleased"),
    ("changelog", "CHANGELOG.md", "## Unreleased\n", "", "does not begin with Unreleased"),
    ("changelog", "CHANGELOG.md", " - 2026-02-03", "", "1.2.0 has no date"),
    ("changelog", "CHANGELOG.md", "2026-02-03", "2999-02-03", "of the future"),
    ("changelog", "CHANGELOG.md", "2026-02-03", "2025-12-31", "do not descend"),
    ("changelog", "CHANGELOG.md", "1.2.0", "1.0.9", "no section 1.2.0"),
    ("changelog", "CHANGELOG.md", "- three\n", "", "without entries"),
    ("changelog", "CHANGELOG.md", "### Fixed", "### Mended", "no kind of change"),
    ("changelog", "CHANGELOG.md", "### Fixed", "### Added", "twice"),
    ("matrix", "docs/versions.md", "1.2.0", "1.1.0", "another version"),
    ("matrix", "docs/versions.md", "| yes |", "| **no** |", "something fails"),
    ("matrix", "docs/versions.md", "| yes |", "| **failed 1**, passed 2 (abc) |", "something fails"),
    ("matrix", "docs/versions.md", "| yes |", "| **no result** (abc) |", "something fails"),
    ("matrix", "docs/versions.md", "| 3.11", "| none", "something fails"),
])
def test_invalid_project_fails_the_check(project, check, file, old, new, said):
    path = project / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(release.Failed) as e:
        release.CHECKS[check][0](project)
    assert said in str(e.value)


@pytest.mark.parametrize("tag", ["1.2.0", "v1.2.0"])
def test_a_tagged_version_is_not_released_again(project, tag):
    subprocess.run(["git", "tag", tag], cwd=project, check=True)
    with pytest.raises(release.Failed, match="tagged already"):
        release.version(project)


@pytest.mark.parametrize("beside, said", [
    ([], None), (["tests/test_a.py"], "tests/test_a.py"), (["mindtorch/__pycache__/a.pyc"], "__pycache__"), (["mindtorch/a.so"], "a.so"), (["benchmarks/run.py"], "has benchmarks, ")])
def test_allowed_contents_of_an_archive(project, beside, said):
    archive = project / "made-1.whl"
    with zipfile.ZipFile(archive, "w") as z:
        for name in ["mindtorch/__init__.py", "mindtorch/a.c", "mindtorch/b.cc", "mindtorch-1.2.0.dist-info/METADATA", *beside]:
            z.writestr(name, "")
    if said is None:
        assert release.contents(archive, project) == 4
    else:
        with pytest.raises(release.Failed, match=said):
            release.contents(archive, project)


def test_archive_without_c_sources_fails(project):
    archive = project / "made-1.whl"
    with zipfile.ZipFile(archive, "w") as z:
        z.writestr("mindtorch/__init__.py", "")
    with pytest.raises(release.Failed, match="lacks mindtorch/a.c"):
        release.contents(archive, project)


def test_failing_command_reports_its_last_lines(tmp_path):
    with pytest.raises(release.Failed, match="ended with 3: some / reason"):
        release.run("sh", "-c", "echo some; echo reason; exit 3", cwd=tmp_path)


def test_changelog_of_this_tree_is_well_formed():
    found = release.sections((ROOT / "CHANGELOG.md").read_text("utf-8"))
    assert found[0][0] == "Unreleased" and found[1][0] == release.version_of(ROOT) and all(date for _, date, _ in found[1:])


def test_manual_steps_name_the_version():
    assert any(f"git tag -a v{release.version_of(ROOT)}" in line for line in release.by_hand(ROOT))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_archives_of_this_tree(tmp_path):
    """The sdist and the wheel built from it contain every file of the package, the C sources, and
    no tests."""
    said = release.archives(ROOT, tmp_path)
    assert f"mindtorch-{release.version_of(ROOT)}-py3-none-any.whl" in said and ".tar.gz" in said
