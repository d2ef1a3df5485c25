"""Generated parts of Markdown files.

A generated part is the text between `<!-- generated: NAME -->` and `<!-- end: NAME -->`.
"""
import os
import platform

DOCS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs")


def processor():
    """Returns the name of the processor and its widest vector extension, for table headers."""
    try:
        with open("/proc/cpuinfo") as f:
            lines = f.read().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    name = next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), platform.machine())
    flags = next((x.split() for x in lines if x.startswith("flags")), [])
    return name + next((f" with {said}" for flag, said in (("avx512f", "AVX-512"), ("avx2", "AVX2 alone")) if flag in flags), "")


def marks(name):
    return f"<!-- generated: {name} -->", f"<!-- end: {name} -->"


def replaced(text, name, part):
    """Returns `text` with the part `name` replaced.

    Raises ValueError unless the markers of the part occur exactly once and in order.
    """
    begin, end = marks(name)
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(end) < text.index(begin):
        raise ValueError(f"no single place between {begin} and {end}")
    head, rest = text.split(begin)
    return f"{head}{begin}\n{part.strip()}\n{end}{rest.split(end)[1]}"


def write(path, name, part):
    """Replaces the part `name` of the file at `path`."""
    with open(path) as f:
        text = replaced(f.read(), name, part)
    with open(path, "w") as f:
        f.write(text)
