"""torch.utils._import_utils: packages that may be there."""
import functools
import importlib
import importlib.util


def _check_module_exists(name):
    """Whether a package can be imported; nothing of it runs."""
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


@functools.cache
def dill_available():
    """Whether dill can be imported."""
    return _check_module_exists("dill")


@functools.cache
def import_dill():
    """dill, without its additions to the standard library's pickle; None where it is not installed."""
    if not dill_available():
        return None
    dill = importlib.import_module("dill")
    dill.extend(use_dill=False)
    return dill
