"""The dispatcher: what sees a call before it is computed.

Generated functions test one flag (5 ns).  Only where it is set does a call come here, and goes through the layers in their order.
"""


class _Flags:
    """ops: whether calls of ops have to be looked at; primitives: whether calls of primitives have to."""

    __slots__ = ("ops", "primitives")


FLAGS = _Flags()
FLAGS.ops = FLAGS.primitives = False
