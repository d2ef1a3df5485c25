"""The prose of the project: no private vocabulary in docstrings, comments and pages, and at most 100
columns (docs/style.md)."""
import ast
import functools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("mindtorch", "tests", "benchmarks", "examples")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
WIDTH = 100

#: Words and phrases that hid the meaning of sentences -> what to write instead.
WORDS = {
    r"somebody|someone|nobody|whoever": "the caller, the user, another thread, no other tensor",
    r"anew": "again, newly",
    r"noughts?": "zeros",
    r"as ever": "unchanged",
    r"in torch's words": "with PyTorch's error message",
    r"beside": "next to, in addition to",
    r"(?:is|are|was|were) (?:told|said)": "the name of what reports, passes or states it",
    r"(?:the|a) (?:core|ops|backend|tools|facade|lower|upper) floors?": "layer, package",
    r"the house": "the architecture",
    r"put off": "deferred",
    r"made over": "re-executed",
    r"has no slope|have no slope": "is not differentiable, has derivative 0",
    r"[Tt]he same of": "'Like `f`, for ...'",
    r"what is kept of": "the saved values",
}
FORBIDDEN = {re.compile(rf"\b(?:{pattern})\b"): instead for pattern, instead in WORDS.items()}


def prose(source):
    """Returns [(line number, line)] of the docstrings and comments of a Python file.

    Comments are found line by line, which is ten times as fast as the tokenizer. Lines inside other
    strings of several lines are left out."""
    lines = source.split("\n")
    rows, strings = {}, set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            rows.update({row: lines[row - 1] for row in range(node.lineno, node.end_lineno + 1)})
        elif isinstance(node, (ast.Constant, ast.JoinedStr)) and node.end_lineno > node.lineno:
            strings.update(range(node.lineno, node.end_lineno + 1))
    for row, line in enumerate(lines, 1):
        if "#" in line and row not in rows and row not in strings:
            code, mark, comment = line.rpartition("# ")
            if mark and (not code.strip() or code.endswith("  ")):
                rows[row] = mark + comment
    return sorted(rows.items())


@functools.lru_cache(None)
def prose_of(folder):
    """Returns {path relative to the project: (lines, rows of prose)} of a folder's Python files."""
    sources = {path.relative_to(ROOT): path.read_text("utf-8") for path in sorted((ROOT / folder).rglob("*.py")) if path.parent.name != "_generated"}
    return {path: (source.split("\n"), prose(source)) for path, source in sources.items()}


def page_prose(text):
    """Yields (line number, line) of a page's prose, without code blocks and tables."""
    code = False
    for row, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and not line.startswith("|"):
            yield row, line


def found(rows, name):
    """Returns the forbidden words in rows of prose. Code in backticks and quotes does not count."""
    return [f"{name}:{row}: {m[0]!r}: write {instead}" for row, line in rows for pattern, instead in FORBIDDEN.items()
            for m in pattern.finditer(re.sub(r"`[^`]*`|\"[^\"]*\"", "", line.replace('"""', "")))]


@pytest.mark.parametrize("folder", FOLDERS)
def test_python_prose_has_no_private_vocabulary(folder):
    wrong = [w for path, (_, rows) in prose_of(folder).items() if path.name != "test_prose.py" for w in found(rows, path)]
    assert not wrong, "\n".join(wrong)


def test_pages_have_no_private_vocabulary():
    wrong = [w for path in PAGES for w in found(page_prose(path.read_text("utf-8")), path.relative_to(ROOT))]
    assert not wrong, "\n".join(wrong)


def is_prose(line):
    """True unless the line is a table, code example, section rule, pragma or unbreakable text."""
    text = line.strip().lstrip("#: ").strip()
    return not (re.match(r"[-=|>]|https?:|\.\. ", text) or "noqa" in line or "type: ignore" in line or "://" in line or "`" in text and " " not in text
                or "  " in text or max(map(len, text.split()), default=0) > 60)


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_and_comment_lines_fit_the_width(folder):
    wrong = [f"{path}:{row}" for path, (lines, rows) in prose_of(folder).items() for row, line in rows
             if len(lines[row - 1]) > WIDTH and (line.startswith("#") and lines[row - 1].lstrip().startswith("#") or line is lines[row - 1]) and is_prose(line)]
    assert not wrong, f"{len(wrong)} lines of more than {WIDTH} columns: " + "\n".join(wrong[:200])


def test_lint_finds_words_and_ignores_code():
    assert [w[:3] for w in found(prose('"""Nothing that somebody reads."""\nx = 1  # computed anew\n'), "f")] == ["f:1", "f:2"]
    assert len(found(prose('x = 1  # computed anew, like `nobody`\n'), "f")) == 1
    assert not found(prose('x = "somebody"  # a name\n'), "f")
    assert not found(page_prose("```\nput off\n```\n| anew |\n"), "page")
