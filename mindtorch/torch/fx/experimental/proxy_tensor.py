"""torch.fx.experimental.proxy_tensor."""
from mindtorch.torch._refusing import refuse


def get_proxy_mode():
    """None: nothing is traced."""
    return None


refuse(globals(), "modules are not captured as graphs; they run eagerly", "make_fx maybe_disable_fake_tensor_mode", "ProxyTorchDispatchMode")
