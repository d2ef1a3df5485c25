"""Batch normalization (https://pytorch.org/docs/stable/nn.html#normalization-layers)."""
import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Parameter
from mindtorch.torch.nn import functional as F
from mindtorch.torch.nn import init
from mindtorch.torch.nn.modules.lazy import LazyModuleMixin
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.nn.parameter import UninitializedBuffer, UninitializedParameter

__all__ = ["BatchNorm1d", "LazyBatchNorm1d", "BatchNorm2d", "LazyBatchNorm2d", "BatchNorm3d", "LazyBatchNorm3d",
           "SyncBatchNorm"]


class _NormBase(Module):
    """Base class of batch and instance normalization: parameters and running statistics."""

    # Version 2 added num_batches_tracked.
    _version = 2
    __constants__ = ["track_running_stats", "momentum", "eps", "num_features", "affine"]

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None,
                 dtype=None, *, bias=True):
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        for name, there in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, Parameter(torch.empty(num_features, device=device,
                                                                dtype=dtype)) if there else None)
        if track_running_stats:
            self.register_buffer("running_mean", torch.zeros(num_features, device=device, dtype=dtype))
            self.register_buffer("running_var", torch.ones(num_features, device=device, dtype=dtype))
            self.register_buffer("num_batches_tracked", torch.tensor(0, dtype=torch.long, device=device))
        else:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)
        self.reset_parameters()

    def reset_running_stats(self):
        """Resets the running mean to 0, the running variance to 1 and the batch counter to 0."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self):
        """Resets the weight to 1, the bias to 0, and the running statistics."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def _check_input_dim(self, input):
        raise NotImplementedError

    def extra_repr(self):
        return (f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
                f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}")

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                              error_msgs):
        version = local_metadata.get("version", None)
        key = prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            held = self.num_batches_tracked
            # Version 1 files have no counter: keep the current one, or start at 0 if this module
            # has none.
            state_dict[key] = held if held is not None and not held.is_meta else torch.tensor(0, dtype=torch.long)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                                      error_msgs)


class _BatchNorm(_NormBase):
    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None,
                 dtype=None, *, bias=True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input):
        self._check_input_dim(input)
        mean, var, training, factor = _statistics(self)
        return F.batch_norm(input, mean, var, self.weight, self.bias, training, factor, self.eps)


def _statistics(norm):
    """Counts the batch and returns (running mean, running var, use batch statistics, update
    factor)."""
    factor = 0.0 if norm.momentum is None else norm.momentum
    if norm.training and norm.track_running_stats and norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
        if norm.momentum is None:             # cumulative average
            factor = 1.0 / float(norm.num_batches_tracked)
    mean, var = norm.running_mean, norm.running_var
    training = norm.training or (mean is None and var is None)
    if norm.training and not norm.track_running_stats:
        mean = var = None
    return mean, var, training, factor


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """Infers num_features from the first input."""

    weight: UninitializedParameter
    bias: UninitializedParameter

    def __init__(self, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None, *,
                 bias=True):
        super().__init__(0, eps, momentum, False, False, device, dtype)
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = torch.tensor(0, dtype=torch.long, device=device)

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input):
        """Sets num_features from `input` and allocates the parameters."""
        if self.has_uninitialized_params():
            self.num_features = input.shape[1]
            for t in (self.weight, self.bias, self.running_mean, self.running_var):
                if t is not None:
                    t.materialize((self.num_features,))
            self.reset_parameters()


def _check_1d(self, input):
    if input.dim() not in (2, 3):
        raise ValueError(f"expected 2D or 3D input (got {input.dim()}D input)")


def _check_2d(self, input):
    if input.dim() != 4:
        raise ValueError(f"expected 4D input (got {input.dim()}D input)")


def _check_3d(self, input):
    if input.dim() != 5:
        raise ValueError(f"expected 5D input (got {input.dim()}D input)")


class BatchNorm1d(_BatchNorm):
    """Normalizes each feature of (N, C) or (N, C, L) over the other dimensions; `momentum=None`
    averages cumulatively."""

    _check_input_dim = _check_1d


class BatchNorm2d(_BatchNorm):
    """Normalizes each channel of (N, C, H, W) over the other dimensions; `momentum=None` averages
    cumulatively."""

    _check_input_dim = _check_2d


class BatchNorm3d(_BatchNorm):
    """Normalizes each channel of (N, C, D, H, W) over the other dimensions; `momentum=None`
    averages cumulatively."""

    _check_input_dim = _check_3d


class LazyBatchNorm1d(_LazyNormBase, _BatchNorm):
    """A BatchNorm1d that infers num_features from its first input."""

    cls_to_become = BatchNorm1d
    _check_input_dim = _check_1d


class LazyBatchNorm2d(_LazyNormBase, _BatchNorm):
    """A BatchNorm2d that infers num_features from its first input."""

    cls_to_become = BatchNorm2d
    _check_input_dim = _check_2d


class LazyBatchNorm3d(_LazyNormBase, _BatchNorm):
    """A BatchNorm3d that infers num_features from its first input."""

    cls_to_become = BatchNorm3d
    _check_input_dim = _check_3d


class SyncBatchNorm(_BatchNorm):
    """Batch normalization over the batches of all processes of a group; equal to BatchNorm in a
    single process."""

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, process_group=None,
                 device=None, dtype=None, *, bias=True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def _check_non_zero_input_channels(self, input):
        if input.size(1) == 0:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero")

    def forward(self, input):
        self._check_input_dim(input)
        self._check_non_zero_input_channels(input)
        mean, var, training, factor = _statistics(self)
        if training and self.training:
            from mindtorch.torch import distributed as dist

            if dist.is_initialized() and dist.get_world_size(self.process_group) > 1:
                from mindtorch.torch.nn.modules._sync_batchnorm import synchronised
                return synchronised(self, input, mean, var, factor)
        return F.batch_norm(input, mean, var, self.weight, self.bias, training, factor, self.eps)

    @classmethod
    def convert_sync_batchnorm(cls, module, process_group=None):
        """Returns `module` with every BatchNorm replaced by a SyncBatchNorm that shares its
        parameters and buffers."""
        new = module
        if isinstance(module, _BatchNorm):
            new = SyncBatchNorm(module.num_features, module.eps, module.momentum, module.affine,
                                module.track_running_stats, process_group)
            if module.affine:
                new.weight = module.weight
                new.bias = module.bias
            new.running_mean = module.running_mean
            new.running_var = module.running_var
            new.num_batches_tracked = module.num_batches_tracked
            new.training = module.training
        for name, child in module.named_children():
            new.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return new
