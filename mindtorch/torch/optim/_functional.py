"""The optimizer algorithms as functions over lists of tensors."""
from mindtorch.torch.optim.adadelta import adadelta  # noqa: F401
from mindtorch.torch.optim.adagrad import adagrad  # noqa: F401
from mindtorch.torch.optim.adam import adam  # noqa: F401
from mindtorch.torch.optim.adamax import adamax  # noqa: F401
from mindtorch.torch.optim.adamw import adamw  # noqa: F401
from mindtorch.torch.optim.asgd import asgd  # noqa: F401
from mindtorch.torch.optim.nadam import nadam  # noqa: F401
from mindtorch.torch.optim.radam import radam  # noqa: F401
from mindtorch.torch.optim.rmsprop import rmsprop  # noqa: F401
from mindtorch.torch.optim.rprop import rprop  # noqa: F401
from mindtorch.torch.optim.sgd import sgd  # noqa: F401
from mindtorch.torch.optim.sparse_adam import sparse_adam  # noqa: F401
