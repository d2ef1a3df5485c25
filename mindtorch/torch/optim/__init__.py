"""Optimizers (https://pytorch.org/docs/stable/optim.html).

Each file holds one algorithm, as a class and as a function over lists of tensors. The update
formulas of the elementwise optimizers are defined once, in mindtorch/backend/optimizer_formulas.py.

Float32, float64 and complex parameters in host memory use a kernel built from these formulas
(mindtorch/backend/cpu/optimizer.py), which updates all parameters of a group at once. A device with
such kernels does the same (mindtorch/core/device/fused_optim.py). Half precision and differentiable=True go
through tensor ops (_spaces.py).
"""
from mindtorch.torch.optim import _functional as _functional
from mindtorch.torch.optim import lr_scheduler as lr_scheduler
from mindtorch.torch.optim import swa_utils as swa_utils
from mindtorch.torch.optim._adafactor import Adafactor as Adafactor
from mindtorch.torch.optim._muon import Muon as Muon
from mindtorch.torch.optim._stateless import swap_in_optimizer_params_and_state as swap_in_optimizer_params_and_state
from mindtorch.torch.optim.adadelta import Adadelta as Adadelta
from mindtorch.torch.optim.adagrad import Adagrad as Adagrad
from mindtorch.torch.optim.adam import Adam as Adam
from mindtorch.torch.optim.adamax import Adamax as Adamax
from mindtorch.torch.optim.adamw import AdamW as AdamW
from mindtorch.torch.optim.asgd import ASGD as ASGD
from mindtorch.torch.optim.lbfgs import LBFGS as LBFGS
from mindtorch.torch.optim.nadam import NAdam as NAdam
from mindtorch.torch.optim.optimizer import Optimizer as Optimizer
from mindtorch.torch.optim.radam import RAdam as RAdam
from mindtorch.torch.optim.rmsprop import RMSprop as RMSprop
from mindtorch.torch.optim.rprop import Rprop as Rprop
from mindtorch.torch.optim.sgd import SGD as SGD
from mindtorch.torch.optim.sparse_adam import SparseAdam as SparseAdam

__all__ = ["Adafactor", "Adadelta", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "LBFGS", "lr_scheduler", "Muon",
           "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam", "swap_in_optimizer_params_and_state",
           "swa_utils"]
