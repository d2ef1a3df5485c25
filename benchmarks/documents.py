"""Generated parts of Markdown files: what stands between `<!-- generated: NAME -->` and `<!-- end: NAME -->`."""
import os

DOCS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs")


def marks(name):
    return f"<!-- generated: {name} -->", f"<!-- end: {name} -->"


def replaced(text, name, part):
    """`text` with the part of that name replaced; ValueError where it has no such place."""
    begin, end = marks(name)
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(end) < text.index(begin):
        raise ValueError(f"no single place between {begin} and {end}")
    head, rest = text.split(begin)
    return f"{head}{begin}\n{part.strip()}\n{end}{rest.split(end)[1]}"


def write(path, name, part):
    """Replaces the part of that name in a file."""
    with open(path) as f:
        text = replaced(f.read(), name, part)
    with open(path, "w") as f:
        f.write(text)
