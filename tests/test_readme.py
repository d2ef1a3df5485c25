"""The claims of docs/tests.md about the tests: files exist, and files without the mark † compare
with PyTorch. Both languages of README have the same content."""
import ast
import pathlib
import re

TESTS = pathlib.Path(__file__).resolve().parent
PAGE = (TESTS.parent / "docs" / "tests.md").read_text("utf-8")
ENGLISH, CHINESE = ((TESTS.parent / name).read_text("utf-8") for name in ("README.md", "README.zh-CN.md"))
MARK = "†"
#: Tests that run PyTorch in a separate process: the text in the file that starts it.
IN_A_PROCESS = {
    "test_distributed.py": "program(",  # the same program under PyTorch with gloo
    "test_resnet_example.py": "sys.executable",  # the script without the hook
    # benchmarks/sides.py: "torch" is PyTorch, with which the losses are compared
    "test_benchmarks.py": "sides(",
    # the pages' commands start `mindtorch diff`, one side of which is PyTorch
    "test_docs_examples.py": "PAGES",
    "test_newcomer.py": "runs(",                 # the same page's commands
    "test_examples.py": "[sys.executable",       # the script without the hook
}


def imports_real_torch(path, seen):
    """True if a file of tests/, or a helper of tests/ that it imports, imports `torch` (the hook is
    off in this process)."""
    if path in seen:
        return False
    seen.add(path)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "torch":
                return True
            helper = TESTS / f"{name.split('.')[0]}.py"
            if helper.exists() and imports_real_torch(helper, seen):
                return True
    # The op database comes from a tool that imports PyTorch.
    return re.search(r"mindtorch\.tools(?:\.| import )_opinfo_runner", path.read_text("utf-8")) is not None


def named():
    """Returns {file: whether it carries the mark} for the tests named in the page's tables."""
    found = {}
    for line in PAGE.splitlines():
        if line.startswith("|"):
            for name, mark in re.findall(rf"`(?:tests/)?((?:\w+/)*test_[\w*]+\.py|conformance/)`({MARK}?)", line):
                for n in sorted(p.relative_to(TESTS).as_posix() for p in TESTS.glob(name)) if "*" in name else [name]:
                    found[n] = bool(mark)
    return found


def test_files_exist():
    names = named()
    assert len(names) > 80
    missing = [n for n in names if not (TESTS / n).exists()]
    assert not missing, missing


def test_mark_matches_files_without_torch_comparison():
    wrong = []
    for name, marked in named().items():
        path = TESTS / ("conformance/test_opinfo.py" if name == "conformance/" else name)
        text = path.read_text("utf-8")
        short = name.rpartition("/")[2]
        compares = IN_A_PROCESS[short] in text if short in IN_A_PROCESS else imports_real_torch(path, set())
        if compares == marked:
            wrong.append(f"{name}: " + ("compares with real torch, yet has the mark" if marked else "does not, yet has no mark"))
    assert not wrong, "\n".join(wrong)


def test_every_test_file_is_named():
    """Every test file is named on the page, so that readers know what it verifies."""
    names = {pathlib.Path(n).name for n in named()}
    left = sorted(p.name for p in TESTS.rglob("test_*.py") if p.name not in names and p.parent.name != "conformance")
    assert set(left) <= OF_THE_PROJECT, left


#: Tests of the project itself, not of a claim to users.
OF_THE_PROJECT = {"test_adding.py", "test_changed.py", "test_ci.py", "test_docstrings.py", "test_floors.py", "test_graph.py", "test_import_cost.py", "test_kernel_cache.py", "test_patches.py", "test_prose.py", "test_readme.py",
                  "test_release.py",
                  "test_runtime.py", "test_testing.py"}


def skeleton(text):
    """Returns the language-independent structure of a page, in order: heading levels, code, table
    rows and their links, list items, and link targets."""
    found, code = [], None
    for line in text.splitlines():
        if line.startswith("```"):
            if code is None:
                code = [line]
            else:
                found.append(("code", *code))
                code = None
        elif code is not None:
            code.append(line)
        elif heading := re.match("#+ ", line):
            found.append(("heading", heading[0]))
        elif line.startswith("|"):
            found.append(("row", line.count("|"), *re.findall(r"\]\(([^)]+)\)", line)))
        elif line.startswith("- "):
            found.append(("item", *sorted(re.findall("`([^`]+)`", line))))
        else:
            found += [("link", target) for target in re.findall(r"\]\(([^)]+)\)", line) if not target.startswith("README")]
    return found


def test_both_readme_languages_match():
    assert skeleton(CHINESE) == skeleton(ENGLISH)
    named = [sorted(set(re.findall("`([^`]+)`", re.sub("```.*?```", "", text, flags=re.S)))) for text in (CHINESE, ENGLISH)]
    assert named[0] == named[1]


def test_links_resolve():
    root = TESTS.parent
    # (Pages that the site's build generates; the build itself checks links strictly.)
    made = ast.literal_eval(re.search(r"^MADE = (\{.*\})$", (root / "docs" / "_pages.py").read_text("utf-8"), re.M)[1])
    assert "zh.md" in made
    for page in [root / "README.md", root / "README.zh-CN.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", re.sub("```.*?```", "", page.read_text("utf-8"), flags=re.S)):
            assert target.startswith("http") or target in made and page.parent.name == "docs" or (page.parent / target).exists(), f"{page.name}: {target}"
