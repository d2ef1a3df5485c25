"""Interpreter exit with live MindSpore Cells.

A Cell that is still alive at exit (e.g. a network at module level) may be finalized after modules
that its `__del__` uses, depending on the import order. Python reports that as an ignored exception.
Nothing is left to free at that time, so `__del__` is skipped.

Importing this module does not import MindSpore.
"""
import sys

from mindtorch.backend.cpython import at_exit
from mindtorch.backend.mindspore.patches import put


@at_exit("Cells that still live")
def _let_cells_end():
    cell = getattr(sys.modules.get("mindspore.nn"), "Cell", None)
    if cell is not None:
        def __del__(self, _finalizing=sys.is_finalizing, _del=cell.__del__):
            if not _finalizing():
                _del(self)

        put("mindspore.nn.cell:Cell.__del__", __del__)
