"""The rows of the op table (core/table.py fills it)."""
import inspect

#: qualified name ("add", "nn.functional.relu", "linalg.inv") -> Op
TABLE = {}


class Op:
    """One row of the table: all that is known of an op."""

    __slots__ = ("name", "ns", "body", "fn", "public", "method", "inplace", "out", "aliases", "autocast", "overlap", "placement", "capture",
                 "writes", "main")

    def __repr__(self):
        return f"<op {self.qualname}>"

    @property
    def qualname(self):
        return f"{self.ns}.{self.name}" if self.ns else self.name

    @property
    def signature(self):
        return inspect.signature(self.body)

    @property
    def lowering(self):
        """How the op is said in graphs of other formats (backend/export); None: by its parts."""
        from mindtorch.backend.export.lowering import LOWERINGS
        return LOWERINGS.get(self.main.qualname)
