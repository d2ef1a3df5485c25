"""torch.fx.experimental.symbolic_shapes: sizes are plain ints here."""
from mindtorch.torch._refusing import refuse


def guard_or_false(a):
    """Returns bool(a): there are no unknown sizes."""
    return bool(a)


guard_or_true = guard_size_oblivious = statically_known_true = definitely_true = guard_bool = guard_or_false


def guard_int(a):
    return int(a)


class GuardOnDataDependentSymNode(RuntimeError):
    """Raised if an exported program uses a value that is only known at run time."""


refuse(globals(), "sizes are plain ints here", "constrain_range hint_int", "ShapeEnv")
