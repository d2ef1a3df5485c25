"""Parts of drawing whole numbers: the bounds that a dtype can tell apart, and permutations."""
import warnings

import numpy as np

from mindtorch.backend.cpu import large
from mindtorch.backend.cpu._rng_dtypes import from_int

MANY = 1500  # numbers from which on `shuffled` is faster than changing places one after another


def _exponent(x):
    return abs(x).bit_length() - 1


def _representable(value, kind):
    """`value` as a float `kind` holds it; of a float too large for int64, what x86 makes."""
    rounded = float(from_int(np.array([value], np.int64), kind, 1)[0])
    return int(rounded) if -(2.0**63) <= rounded < 2.0**63 else -(2**63)


def inner_bounds(low, high, kind):
    """low and high moved inwards to where a float `kind` can tell them apart from their neighbours, as torch does."""
    rounded = _representable(low + 1, kind)
    if rounded < low:
        low = rounded + (1 << (_exponent(low) - kind.digits + 1))
    if high is not None:
        rounded = _representable(high - 1, kind)
        if rounded >= high:
            high = rounded - (1 << (_exponent(high - 1) - kind.digits + 1))
    return low, high


def check_bound(name, value, kind):
    if not kind.low <= value <= kind.high:
        raise RuntimeError(f"{name} is out of bounds for {kind.ctype}")
    if kind.digits and not -(2**kind.digits) <= value <= 2**kind.digits:
        warnings.warn(
            f"{name} is out of bounds [-(2^{kind.digits}), 2^{kind.digits}]. Due to precision limitations {kind.ctype} "
            "can support discrete uniform distribution only within this range. This warning will become an error in "
            "version 1.7 release, please fix the code in advance",
            stacklevel=4,
        )


def shuffled(steps):
    """0..n-1 after step i, for all i in turn, has made the places i and i + steps[i] change what they hold.

    A million in 75 ms, one after another 650 (torch 5).  Step i puts into place i what its partner j holds: j itself, or what
    the last earlier step with the same partner has left there.  That is what this step found in its own place: by the same
    token its own number, or what the last earlier step that had it for a partner found in its place, and so on.
    """
    if (r := large.along().shuffled(steps)) is not None:     # (three million: 110 ms; the rest of this 420, torch 105)
        return r
    n = steps.size + 1
    i = np.arange(n)
    partner = i.copy()
    partner[:-1] += steps
    # Sorted by partner and step, in one number.
    key = partner << 32
    key |= i
    key.sort()
    step, place = key & 0xFFFFFFFF, key >> 32
    same = place[1:] == place[:-1]
    earlier = np.full(n, -1)  # the last earlier step with the same partner
    earlier[step[1:][same]] = step[:-1][same]
    # found[i]: first the last earlier step that had i for its partner (or i), then what its chain of those ends with.
    last = np.append(~same, True)
    step, place = step[last], place[last]
    found = i.copy()
    own = step == place
    found[place[~own]] = step[~own]
    own = place[own]
    before = earlier[own]
    found[own[before >= 0]] = before[before >= 0]
    todo = np.flatnonzero(found != i)
    while todo.size:
        now = found[todo]
        further = found[now]
        found[todo] = further
        todo = todo[further != now]
    return np.where(earlier >= 0, found[earlier], partner)
