"""The end of the interpreter, for MindSpore's Cells.

A Cell that still lives then (a network at module level) is taken down after modules that its `__del__` uses, if those were imported in an
unlucky order; Python reports that as an ignored exception.  Nothing is left to free at that time, so it is skipped.

Importing this does not import MindSpore.
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
