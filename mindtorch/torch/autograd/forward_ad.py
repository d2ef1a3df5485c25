"""torch.autograd.forward_ad: forward-mode differentiation is not supported; use torch.autograd.functional.jvp."""

__all__ = ["dual_level", "make_dual", "unpack_dual"]


def _refuse(name):
    def f(*args, **kwargs):
        raise NotImplementedError(f"torch.autograd.forward_ad.{name}: forward-mode differentiation is not supported on device "
                                  "cpu; torch.autograd.functional.jvp computes the same product by double backward")
    f.__name__ = name
    return f


dual_level = _refuse("dual_level")
make_dual = _refuse("make_dual")
unpack_dual = _refuse("unpack_dual")
enter_dual_level = _refuse("enter_dual_level")
exit_dual_level = _refuse("exit_dual_level")
