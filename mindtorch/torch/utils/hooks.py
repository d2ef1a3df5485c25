"""torch.utils.hooks: handles to remove hooks."""
import warnings

from mindtorch.core.dispatch.primitives import RemovableHandle  # noqa: F401
from mindtorch.torch._refusing import refuse

__all__ = ["RemovableHandle", "unserializable_hook", "warn_if_has_hooks", "BackwardHook"]


def unserializable_hook(f):
    """Marks a hook that is not serialized with its tensor."""
    f.__torch_unserializable__ = True
    return f


def warn_if_has_hooks(tensor):
    """Warns about hooks on a tensor that are not serialized with it."""
    for hook in (getattr(tensor, "_backward_hooks", None) or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, you can decorate the "
                          "function with @torch.utils.hooks.unserializable_hook to suppress this warning", stacklevel=2)


refuse(globals(), "modules run their backward hooks themselves", "", "BackwardHook")
