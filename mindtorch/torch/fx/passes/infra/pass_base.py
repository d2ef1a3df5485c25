"""torch.fx.passes.infra.pass_base: passes over graphs."""
import abc
from typing import NamedTuple

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """A pass's GraphModule, and whether the pass changed it."""

    graph_module: object
    modified: bool


class PassBase(abc.ABC):      # noqa: B024
    """A pass: `requires`, `call` and `ensures` one after the other."""

    def __call__(self, graph_module):
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module):
        """The pass itself; gives a PassResult."""

    def requires(self, graph_module):      # noqa: B027
        """Checks before the pass."""

    def ensures(self, graph_module):      # noqa: B027
        """Checks after it."""
