"""The examples of pages in docs/, run as written: commands, exit statuses and output, except for
digits."""
import ast
import functools
import re
import shutil

import pytest
from _docs_pages import BLOCK, ROOT, agree, runs, text_of

#: page -> number of commands it shows
PAGES = {"debugging.md": 5, "getting-started.md": 4, "migrating.md": 5}
MADE = {"debugging.md": ["report.html", "layers.json"], "getting-started.md": ["fit.pth", "fit.pt", "fit.mindir"], "migrating.md": ["resnet.pth", "resnet.ckpt"]}


def with_examples(process):
    """Copies the examples, because a page may add a file next to them."""
    shutil.copytree(ROOT / "examples", process.folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES)
def test_examples_print_what_the_page_shows(process, page):
    with_examples(process)
    assert runs(process, page) == PAGES[page]
    assert all((process.folder / name).exists() for name in MADE[page])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_script_prints_the_same_under_real_torch(process):
    """As docs/getting-started.md states; the last line, the model's graph, differs between the
    libraries."""
    blocks = BLOCK.findall(text_of("getting-started.md"))
    process.file("fit.py", next(text for kind, name, text in blocks if name == "fit.py"))
    done = process.run("fit.py")
    shown = next(text for kind, name, text in blocks if kind == "console").splitlines()[1:]
    assert done.stdout.splitlines() == shown, done.stderr


@pytest.mark.slow
def test_readmes_script_prints_the_same_with_and_without_the_line(process):
    shown = re.search("^```diff\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)[1].splitlines()
    process.file("with_it.py", "\n".join(line[1:] for line in shown))
    process.file("without.py", "\n".join(line[1:] for line in shown if not line.startswith("+")))
    ours, theirs = process.run("with_it.py"), process.run("without.py")
    assert abs(float(ours.stdout) - float(theirs.stdout)) < 1e-5, ours.stderr + theirs.stderr
    assert len(shown) == 13


@pytest.mark.ascend
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", ["getting-started.md", "migrating.md"])
def test_simulator_counts_match_the_page(process, page):
    with_examples(process)
    assert runs(process, page, "standin") == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_npu_migration_matches_the_page(process, monkeypatch):
    """Runs on MindSpore's CPU kernels, as the page states for its output."""
    with_examples(process)
    monkeypatch.setattr(process, "run", functools.partial(process.run, env={"MINDTORCH_NPU": "cpu"}))
    assert runs(process, "migrating.md", "npu") == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_migrated_example_matches_torch_in_float64(process):
    """As docs/migrating.md states about rounding: in float64 all printed losses are the same."""
    with_examples(process)
    shown = next(line for line in text_of("migrating.md").splitlines() if line.startswith("$ python -m mindtorch run examples/resnet/train.py"))
    script = shown.split()[5:]
    ours, theirs = process.run("-m", "mindtorch", "run", *script, "--double", timeout=200), process.run(*script, "--double", timeout=200)
    assert len(theirs.stdout.splitlines()) == 8 and ours.stdout == theirs.stdout, ours.stderr + theirs.stderr


def test_page_shows_a_picture():
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text_of("debugging.md"))
    assert pictures
    for name in pictures:
        data = (ROOT / "docs" / name).read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n" and 50_000 < len(data) < 300_000


@pytest.mark.parametrize("shown, printed", [(["a 1.50"], ["b 1.50"]), (["a"], ["a", "b"]), (["...", "c", "b"], ["a", "b", "c"]), (["a", "c"], ["a", "b", "c"])])
def test_a_difference_would_be_seen(shown, printed):
    with pytest.raises(AssertionError):
        agree(shown, printed)
    agree(["a", "...", "c 1.5e-03"], ["a", "x", "y", "c 2.5e-07"])


def words_of(text):
    """Returns the words of a text as one line."""
    return " ".join(re.sub(r"\s+", " ", text).split())


def test_quoted_messages_occur_in_the_sources():
    """Every message quoted in docs/troubleshooting.md occurs in a string of the package."""
    strings = []
    for path in sorted((ROOT / "mindtorch").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                strings.append("".join(v.value if isinstance(v, ast.Constant) else "{}" for v in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                strings.append(node.value)
    everything = words_of("\n".join(strings))
    quoted = []
    for line in text_of("troubleshooting.md").splitlines():
        if line.startswith("| `"):
            quoted += [q for q in re.findall("`([^`]+)`", line.split(" | ")[0]) if q != "NotImplementedError"]
    missing = [q for q in quoted if words_of(q) not in everything]
    assert len(quoted) > 12 and not missing, missing
