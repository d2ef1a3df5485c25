"""torch.fx.experimental.refinement_types."""


class Equality:
    """The constraint that two sizes are equal."""

    def __init__(self, lhs, rhs):
        self.lhs, self.rhs = lhs, rhs

    def __str__(self):
        return f"{self.lhs} = {self.rhs}"

    __repr__ = __str__

    def __eq__(self, other):
        return isinstance(other, Equality) and self.lhs == other.lhs and self.rhs == other.rhs

    def __hash__(self):
        return hash((self.lhs, self.rhs))
