"""torch.utils._import_utils: checks for optional packages."""
import functools
import importlib
import importlib.util


def _check_module_exists(name):
    """True if a package can be imported; does not execute the package."""
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


@functools.cache
def dill_available():
    """True if dill can be imported."""
    return _check_module_exists("dill")


@functools.cache
def import_dill():
    """Returns dill without its extensions of the standard library's pickle; None if it is not
    installed."""
    if not dill_available():
        return None
    dill = importlib.import_module("dill")
    dill.extend(use_dill=False)
    return dill
