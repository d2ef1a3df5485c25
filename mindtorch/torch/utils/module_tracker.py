"""torch.utils.module_tracker: tracks which modules are running, in forward or backward."""
import weakref

from mindtorch.core.autograd import engine
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.autograd.graph import register_multi_grad_hook
from mindtorch.torch.autograd.variable import Variable
from mindtorch.torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from mindtorch.torch.utils._pytree import tree_flatten

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """Context manager; `parents` contains the names of the modules that are running, and "Global".

    A name is the class of the outermost module followed by the state dict name: "Net.layers.0". In
    backward, a module runs from the gradients of its outputs to those of its inputs; a module whose
    inputs do not require gradients runs until the end.
    """

    def __init__(self):
        self.parents = {"Global"}
        self._names, self._walked = weakref.WeakKeyDictionary(), weakref.WeakSet()
        self._hooks, self._waits = [], False

    @property
    def is_bw(self):
        """True while backward is running."""
        return engine.current_graph_task() is not None

    def _name(self, module):
        name = self._names.setdefault(module, type(module).__name__)
        if module not in self._walked:
            self._walked.add(module)
            for key, child in module.named_children():
                self._names[child] = f"{name}.{key}"
                self._name(child)
        return name

    def _at_end(self):
        self.parents, self._waits = {"Global"}, False

    def _enter(self, name):
        def entered(*_):
            if not self._waits:
                self._waits = True
                Variable._execution_engine.queue_callback(self._at_end)
            self.parents.add(name)
        return entered

    def _leave(self, name):
        return lambda *_: self.parents.discard(name)

    def _watch(self, values, hook):
        tensors = [t for t in tree_flatten(values)[0] if is_tensor(t) and t.requires_grad]
        if tensors:
            self._hooks.append(register_multi_grad_hook(tensors, hook))

    def _before(self, module, args):
        name = self._name(module)
        self.parents.add(name)
        self._watch(args, self._leave(name))

    def _after(self, module, args, result):
        name = self._name(module)
        self.parents.discard(name)
        self._watch(result, self._enter(name))

    def __enter__(self):
        self._handles = [register_module_forward_pre_hook(self._before), register_module_forward_hook(self._after)]
        return self

    def __exit__(self, *exc):
        for hook in (*self._handles, *self._hooks):
            hook.remove()
        self._hooks.clear()
