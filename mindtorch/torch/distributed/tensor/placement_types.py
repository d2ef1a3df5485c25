"""How a tensor is placed along one dimension of a mesh: sharded, replicated, or partial (terms of a
reduction)."""
from mindtorch.torch._refusing import refuse

__all__ = ["Placement", "Shard", "Replicate", "Partial"]


class Placement:
    """Base class of Shard, Replicate and Partial."""

    def is_shard(self, dim=None):
        """True for a Shard (along `dim`, if given)."""
        return False

    def is_replicate(self):
        """True for a Replicate."""
        return False

    def is_partial(self, reduce_op=None):
        """True for a Partial (with this reduction, if given)."""
        return False


class Shard(Placement):
    """Split along dimension `dim` as by torch.chunk: equal chunks first, the last ones smaller or
    empty."""

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
    """The full tensor on every rank."""

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
    """Every rank has a tensor of the full size. The value is their reduction: "sum", "avg", "max",
    "min" or "product"."""

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
refuse(globals(), "strided sharding is not implemented; use Shard", "", "_StridedShard")
