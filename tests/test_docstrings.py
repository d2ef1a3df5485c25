"""Docstrings of the public API, from which the API pages are generated: at most one name in twenty
lacks one."""
import inspect

from _public import DESCRIBED, names_of


def test_at_most_one_name_in_twenty_lacks_a_docstring():
    found = {f"{namespace}.{name}": bool((inspect.getdoc(o) or "").strip()) for namespace in DESCRIBED for name, o in names_of(namespace)}
    without = sorted(name for name, there in found.items() if not there)
    assert len(found) > 2000 and len(without) <= len(found) / 20, f"{len(without)} of {len(found)}: {without}"


def test_every_namespace_has_names():
    assert not [n for n in DESCRIBED if not names_of(n)]
