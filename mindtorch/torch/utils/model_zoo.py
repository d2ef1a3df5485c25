"""torch.utils.model_zoo: former name of torch.hub's download functions."""
from mindtorch.torch.hub import load_state_dict_from_url as load_url, tqdm  # noqa: F401
