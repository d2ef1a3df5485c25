"""Pages of docs/ that show commands with their output: runs the commands and compares the output,
ignoring digits."""
import pathlib
import re
import shlex

ROOT = pathlib.Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(python|console) ?(\S*)\n(.*?)^```$", re.M | re.S)


def text_of(page):
    return (ROOT / "docs" / page).read_text("utf-8")


def plain(line):
    """Normalizes a line: masks what rounding or another machine may change."""
    line = re.sub(r"(?<![\w.])[-+]?\d+\.\d+(e[-+]?\d+)?|(?<![\w.])\d+e[-+]\d+|\b\d+\.\d+\.\d+\S*", "#", line)
    line = re.sub(r"-{5,}", "--", " ".join(line.split()))
    # a layer of the comparison; bitwise equal and nearly equal are not distinguished
    if line[:2] in ("= ", "~ ", "X "):
        line = re.sub(r"(?<= )\d+(?= )", "#", re.sub(r"^= ", "~ ", line))
        line = re.sub(r"\bsame\b", "noise", line)
    return line


def agree(shown, printed):
    """Checks that the printed lines are those shown; '...' stands for any number of lines."""
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
    """Runs the commands of a page's console blocks tagged `where`, and compares their output.

    Returns the number of commands.
    """
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
