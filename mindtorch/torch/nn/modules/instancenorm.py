"""Instance normalization (https://pytorch.org/docs/stable/nn.html#normalization-layers)."""
import warnings

from mindtorch.torch.nn import functional as F
from mindtorch.torch.nn.modules.batchnorm import _LazyNormBase, _NormBase

__all__ = ["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d",
           "LazyInstanceNorm3d"]


class _InstanceNorm(_NormBase):
    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=False, track_running_stats=False, device=None,
                 dtype=None, *, bias=True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _check_input_dim(self, input):
        raise NotImplementedError

    def _get_no_batch_dim(self):
        raise NotImplementedError

    def _handle_no_batch_input(self, input):
        return self._apply_instance_norm(input.unsqueeze(0)).squeeze(0)

    def _apply_instance_norm(self, input):
        return F.instance_norm(input, self.running_mean, self.running_var, self.weight, self.bias,
                               self.training or not self.track_running_stats,
                               0.0 if self.momentum is None else self.momentum, self.eps)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                              error_msgs):
        if local_metadata.get("version", None) is None and not self.track_running_stats:
            # Before PyTorch 0.4 these layers tracked statistics by default.
            stale = [n for n in ("running_mean", "running_var") if prefix + n in state_dict]
            if stale:
                cls = type(self).__name__
                names = " and ".join(f'"{prefix + n}"' for n in stale)
                error_msgs.append(
                    f"Unexpected running stats buffer(s) {names} for {cls} with track_running_stats=False. If "
                    f"state_dict is a checkpoint saved before 0.4.0, this may be expected because {cls} does not track "
                    "running stats by default since 0.4.0. Please remove these keys from state_dict. If the running "
                    f"stats are actually needed, instead set track_running_stats=True in {cls} to enable them. See the "
                    f"documentation of {cls} for details.")
                for n in stale:
                    state_dict.pop(prefix + n)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                                      error_msgs)

    def forward(self, input):
        self._check_input_dim(input)
        no_batch = self._get_no_batch_dim()
        channels = 0 if input.dim() == no_batch else 1
        if input.size(channels) != self.num_features:
            if self.affine:
                raise ValueError(f"expected input's size at dim={channels} to match num_features "
                                 f"({self.num_features}), but got: {input.size(channels)}.")
            warnings.warn(f"input's size at dim={channels} does not match num_features. You can silence this warning "
                          "by not passing in num_features, which is not used because affine=False", stacklevel=3)
        if input.dim() == no_batch:
            return self._handle_no_batch_input(input)
        return self._apply_instance_norm(input)


def _make(n):
    def _get_no_batch_dim(self):
        return n + 1

    def _check_input_dim(self, input):
        if input.dim() not in (n + 1, n + 2):
            raise ValueError(f"expected {n + 1}D or {n + 2}D input (got {input.dim()}D input)")

    return _get_no_batch_dim, _check_input_dim


class InstanceNorm1d(_InstanceNorm):
    """Normalizes each channel of each sample of (N, C, L) or (C, L)."""

    _get_no_batch_dim, _check_input_dim = _make(1)


class InstanceNorm2d(_InstanceNorm):
    """Normalizes each channel of each sample of (N, C, H, W) or (C, H, W)."""

    _get_no_batch_dim, _check_input_dim = _make(2)


class InstanceNorm3d(_InstanceNorm):
    """Normalizes each channel of each sample of (N, C, D, H, W) or (C, D, H, W)."""

    _get_no_batch_dim, _check_input_dim = _make(3)


class LazyInstanceNorm1d(_LazyNormBase, _InstanceNorm):
    """An InstanceNorm1d that infers num_features from its first input."""

    cls_to_become = InstanceNorm1d
    _get_no_batch_dim, _check_input_dim = _make(1)


class LazyInstanceNorm2d(_LazyNormBase, _InstanceNorm):
    """An InstanceNorm2d that infers num_features from its first input."""

    cls_to_become = InstanceNorm2d
    _get_no_batch_dim, _check_input_dim = _make(2)


class LazyInstanceNorm3d(_LazyNormBase, _InstanceNorm):
    """An InstanceNorm3d that infers num_features from its first input."""

    cls_to_become = InstanceNorm3d
    _get_no_batch_dim, _check_input_dim = _make(3)
