"""torch.version: the PyTorch release whose API this package implements, and a string class that
compares as a version."""
import re

__version__ = "2.13.0+mindspore"
debug = False
cuda = None
hip = None
xpu = None
git_version = "unknown"


def _key(v):
    """Returns the sort key of a version, or None if it cannot be parsed.

    The key is (release numbers, rank of the pre-release or post-release tag, number of the tag,
    local version).
    """
    if isinstance(v, (tuple, list)):
        v = ".".join(str(p) for p in v)
    m = re.match(r"\s*v?(\d+(?:\.\d+)*)\s*[-_.]?((?:a|b|c|rc|alpha|beta|pre|dev|post)[-_.]?\d*)?([^+]*)(?:\+(.*))?$", str(v).strip())
    if m is None:
        return None
    release = [int(p) for p in m[1].split(".")]
    while release and release[-1] == 0:
        release.pop()
    tag = m[2] or ""
    word = tag.rstrip("0123456789").rstrip("-_.")
    rank = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "rc": -1, "c": -1, "pre": -1, "": 0, "post": 1}[word]
    digits = re.search(r"\d+$", tag)
    return release, rank, int(digits[0]) if digits else 0, (0, "") if m[4] is None else (1, m[4])


class TorchVersion(str):
    """Version string; comparisons order versions and accept a string or a tuple of integers."""

    def _compare(self, other, op):
        # version objects of the package `packaging` have `release`
        if not isinstance(other, (str, tuple, list)) and not hasattr(other, "release"):
            return NotImplemented
        a, b = _key(str(self)), _key(other)
        if b is None:
            return getattr(str, op)(self, other)
        return getattr(tuple, op)(a, b)

    def __lt__(self, other):
        return self._compare(other, "__lt__")

    def __le__(self, other):
        return self._compare(other, "__le__")

    def __gt__(self, other):
        return self._compare(other, "__gt__")

    def __ge__(self, other):
        return self._compare(other, "__ge__")

    def __eq__(self, other):
        return self._compare(other, "__eq__")

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


# defined here, so that importing it loads no additional module
TorchVersion.__module__ = "mindtorch.torch.torch_version"
