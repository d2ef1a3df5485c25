"""torch.quantization: former name of torch.ao.quantization."""
from mindtorch.torch.ao import quantization as _q

globals().update({n: v for n, v in vars(_q).items() if not n.startswith("_")})
