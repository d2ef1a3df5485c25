"""Cells that MindSpore's compiler reads (all else of the project it does not: jit_fallback.py)."""
from mindtorch.backend.mindspore.runtime import ms
from mindspore.ops.auto_generate import BatchNormExt


class GradientOf(ms.nn.Cell):
    """Gradients of a Cell's result to the arguments at `position`: (*arguments, gradient of the result) -> a tensor, or a tuple where there are several."""

    _mindtorch_graph = True

    def __init__(self, net, position):
        super().__init__(auto_prefix=False)
        self.net, self.position = net, position

    def construct(self, *args):
        """See the class."""
        return ms.grad(self.net, self.position, sens_param=True)(*args)


class Norm(ms.nn.Cell):
    """aclnn's batch norm, of which MindSpore's compiler takes the gradient's kernel from its own differentiation alone: (x, weight, bias, mean, variance)."""

    _mindtorch_graph = True

    def __init__(self, training, eps):
        super().__init__(auto_prefix=False)
        self.norm, self.by_batch, self.eps = BatchNormExt(), training, eps

    def construct(self, x, w, b, mean, var):
        """See the class."""
        return self.norm(x, w, b, mean, var, self.by_batch, 0.1, self.eps)[0]
