"""The examples of docs/debugging.md, run as they stand there: commands, exit statuses, and what they print, but for digits."""
import pathlib
import re
import shlex

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "debugging.md").read_text("utf-8")
BLOCK = re.compile(r"^```(python|console) ?(\S*)\n(.*?)^```$", re.M | re.S)


def plain(line):
    """A line without what rounding or another machine may make of it."""
    line = re.sub(r"(?<![\w.])[-+]?\d+\.\d+(e[-+]?\d+)?|(?<![\w.])\d+e[-+]\d+|\b\d+\.\d+\.\d+\S*", "#", line)
    line = re.sub(r"-{5,}", "--", " ".join(line.split()))
    if line[:2] in ("= ", "~ ", "X "):      # a layer of the comparison: to the last bit equal, or nearly
        line = re.sub(r"(?<= )\d+(?= )", "#", re.sub(r"^= ", "~ ", line))
        line = re.sub(r"\bsame\b", "noise", line)
    return line


def agree(shown, printed):
    """Whether the lines shown are those printed; '...' stands for any number of lines."""
    want, have = [plain(x) for x in shown if x.strip()], [plain(x) for x in printed if x.strip()]
    at, skipping = 0, False
    for line in want:
        if line == "...":
            skipping = True
            continue
        found = have.index(line, at) if line in have[at:] else None
        assert found is not None and (skipping or found == at), f"{line!r} is not what is printed: {have[at:at + 3]}"
        at, skipping = found + 1, False
    assert skipping or at == len(have), f"more is printed: {have[at:]}"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_examples_say_what_the_page_shows(process):
    (process.folder / "examples").symlink_to(ROOT / "examples")
    commands = 0
    for kind, name, text in BLOCK.findall(PAGE):
        if kind == "python":
            process.file(name, text)
            continue
        status = None
        for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
            command, *shown = part.splitlines()
            if command == "echo $?":
                assert shown == [str(status)]
                continue
            words = shlex.split(command)
            assert words[0] == "python"
            done = process.run(*words[1:])
            status, commands = done.returncode, commands + 1
            assert "Traceback" not in done.stderr, done.stderr
            said = [x for x in done.stderr.splitlines() if x.startswith("watch:")]
            agree(shown, said + done.stdout.splitlines())
    assert commands == 5 and (process.folder / "report.html").exists() and (process.folder / "layers.json").exists()


def test_the_page_shows_a_picture():
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", PAGE)
    assert pictures
    for name in pictures:
        data = (ROOT / "docs" / name).read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n" and 50_000 < len(data) < 300_000


@pytest.mark.parametrize("shown, printed", [(["a 1.50"], ["b 1.50"]), (["a"], ["a", "b"]), (["...", "c", "b"], ["a", "b", "c"]), (["a", "c"], ["a", "b", "c"])])
def test_a_difference_would_be_seen(shown, printed):
    with pytest.raises(AssertionError):
        agree(shown, printed)
    agree(["a", "...", "c 1.5e-03"], ["a", "x", "y", "c 2.5e-07"])
