"""Generated parts of Markdown files: what stands between `<!-- generated: NAME -->` and `<!-- end: NAME -->`."""
import os
import platform

DOCS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs")


def processor():
    """What a table says of the processor: its name and the widest vectors it has."""
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
