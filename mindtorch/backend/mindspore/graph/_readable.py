"""Cells that MindSpore's compiler reads (all else of the project it does not: jit_fallback.py)."""
from mindtorch.backend.mindspore.runtime import ms


class GradientOf(ms.nn.Cell):
    """Gradients of a Cell's result to the arguments at `position`: (*arguments, gradient of the result) -> a tensor, or a tuple where there are several."""

    _mindtorch_graph = True

    def __init__(self, net, position):
        super().__init__(auto_prefix=False)
        self.net, self.position = net, position

    def construct(self, *args):
        """See the class."""
        return ms.grad(self.net, self.position, sens_param=True)(*args)
