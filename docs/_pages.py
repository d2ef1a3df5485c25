"""Pages that `mkdocs build` generates: the API, one page per namespace, and the navigation.

Signatures and first paragraphs come from the running package, so that missing docstrings show.
"""
import collections
import inspect
import sys
from pathlib import Path

import mkdocs_gen_files

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from _public import DESCRIBED, names_of  # noqa: E402

#: Section title -> pages in reading order.
NAVIGATION = {
    "Getting started": ["index.md", "zh.md", "getting-started.md", "migrating.md", "troubleshooting.md", "settings.md", "limits.md"],
    "User guide": ["mindspore-style.md", "data.md", "checkpoints.md", "compile.md", "export.md", "distributed.md", "distributed-training.md",
                   "sparse.md", "vmap.md", "forward_mode.md", "memory-format.md", "from-mindtorch-0.4.md"],
    "NPU": ["npu.md", "graphs.md", "ascend.md"],
    "Debugging": ["debugging.md"],
    "Coverage and speed": ["coverage.md", "libraries.md", "tests.md", "versions.md", "speed.md", "speed-ops.md"],
    "Development": ["design.md", "contributing.md", "style.md", "adding.md", "testing.md"],
}
#: Page of the site -> (title in the navigation, source file in the root folder).
MADE = {"contributing.md": ("Contributing", "CONTRIBUTING.md"), "zh.md": ("中文", "README.zh-CN.md")}


def first(o):
    """Returns the first paragraph of a docstring on one line."""
    text = inspect.getdoc(o) or ""
    return " ".join(text.split("\n\n")[0].split())


def signature(o):
    """Returns the signature as text, (a, b=1); empty if Python provides none."""
    try:
        return str(inspect.signature(o))
    except (TypeError, ValueError):
        return ""


def title(page):
    """Returns the heading of a page."""
    return next(line[2:] for line in (ROOT / "docs" / page).read_text("utf-8").splitlines() if line.startswith("# "))


def escaped(text):
    return text.replace("<", "&lt;").replace("|", "\\|").replace("[", "\\[")


api = []
for namespace in DESCRIBED:
    entries = names_of(namespace)
    kinds = collections.Counter("class" if inspect.isclass(o) else "function" for _, o in entries)
    lines = [f"# {namespace}", "", f"{kinds['function']} functions, {kinds['class']} classes.", ""]
    for name, o in entries:
        lines += [f"### {name.replace('_', chr(92) + '_')}", "", f"`{name}{signature(o)}`", "", escaped(first(o)), ""]
    page = f"api/{namespace}.md"
    with mkdocs_gen_files.open(page, "w") as f:
        f.write("\n".join(lines))
    api.append((namespace, page))

# Links between files of the root folder become links between their pages.
PAGE_OF = {"README.md": "index.md", **{source: page for page, (_, source) in MADE.items()}}
for page, (_, source) in MADE.items():
    text = (ROOT / source).read_text("utf-8").replace("](docs/", "](")
    for target, there in PAGE_OF.items():
        text = text.replace(f"]({target})", f"]({there})")
    with mkdocs_gen_files.open(page, "w") as f:
        f.write(text)

with mkdocs_gen_files.open("SUMMARY.md", "w") as f:
    for section, pages in NAVIGATION.items():
        f.write(f"- {section}\n")
        for page in pages:
            f.write(f"    - [{MADE[page][0] if page in MADE else title(page)}]({page})\n")
    f.write("- API\n")
    for namespace, page in api:
        f.write(f"    - [{namespace}]({page})\n")
