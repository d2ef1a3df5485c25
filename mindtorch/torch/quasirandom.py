"""torch.quasirandom."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "Sobol sequences are not generated; scipy.stats.qmc has them", "", "SobolEngine")
