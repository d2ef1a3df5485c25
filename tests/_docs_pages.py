"""Pages of docs/ that show commands and what they print: running them, and comparing, but for digits."""
import pathlib
import re
import shlex

ROOT = pathlib.Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(python|console) ?(\S*)\n(.*?)^```$", re.M | re.S)


def text_of(page):
    return (ROOT / "docs" / page).read_text("utf-8")


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


def runs(process, page, where=""):
    """Runs the commands of a page's blocks that say `where`, and compares what they print; how many there were."""
    commands = 0
    for kind, name, text in BLOCK.findall(text_of(page)):
        if kind == "python":
            if name:
                process.file(name, text)
            continue
        if name != where:
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
    return commands
