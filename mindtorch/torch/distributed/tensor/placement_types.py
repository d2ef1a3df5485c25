"""How a tensor lies along one dimension of a mesh: split, repeated, or as parts of a sum."""
from mindtorch.torch._refusing import refuse

__all__ = ["Placement", "Shard", "Replicate", "Partial"]


class Placement:
    """Base of Shard, Replicate and Partial."""

    def is_shard(self, dim=None):
        """Whether it is a Shard (along `dim`, if one is given)."""
        return False

    def is_replicate(self):
        """Whether it is a Replicate."""
        return False

    def is_partial(self, reduce_op=None):
        """Whether it is a Partial (with this reduction, if one is given)."""
        return False


class Shard(Placement):
    """Split along dimension `dim` as torch.chunk does: equal parts from the front, the last ones smaller or empty."""

    def __init__(self, dim):
        self.dim = dim

    def is_shard(self, dim=None):
        return dim is None or dim == self.dim

    def __eq__(self, other):
        return type(other) is Shard and other.dim == self.dim

    def __hash__(self):
        return hash(("Shard", self.dim))

    def __repr__(self):
        return f"Shard(dim={self.dim})"

    def __str__(self):
        return f"S({self.dim})"


class Replicate(Placement):
    """The whole on every rank."""

    def is_replicate(self):
        return True

    def __eq__(self, other):
        return type(other) is Replicate

    def __hash__(self):
        return hash("Replicate")

    def __repr__(self):
        return "Replicate()"

    def __str__(self):
        return "R"


class Partial(Placement):
    """Every rank has a part of the size of the whole, which is their reduction: "sum", "avg", "max", "min", "product"."""

    def __init__(self, reduce_op="sum"):
        self.reduce_op = reduce_op

    def is_partial(self, reduce_op=None):
        return reduce_op is None or reduce_op == self.reduce_op

    def __eq__(self, other):
        return type(other) is Partial and other.reduce_op == self.reduce_op

    def __hash__(self):
        return hash(("Partial", self.reduce_op))

    def __repr__(self):
        return f"Partial({self.reduce_op})"

    def __str__(self):
        return f"P({self.reduce_op})"


_Partial = Partial
refuse(globals(), "tensors are split in order only", "", "_StridedShard")
