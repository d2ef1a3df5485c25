"""torch.fx.passes.infra.pass_base: a graph pass with checks before and after it."""
import abc
from typing import NamedTuple

__all__ = ["PassResult", "PassBase"]


class PassResult(NamedTuple):
    """The GraphModule after a pass, and whether the pass modified it."""

    graph_module: object
    modified: bool


class PassBase(abc.ABC):
    """Base class of passes. Subclasses implement `call`; `requires` and `ensures` may raise."""

    def __call__(self, graph_module):
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module):
        """Runs the pass on a GraphModule and returns a PassResult."""

    def requires(self, graph_module):  # noqa: B027
        """Called before the pass."""

    def ensures(self, graph_module):  # noqa: B027
        """Called after the pass."""
