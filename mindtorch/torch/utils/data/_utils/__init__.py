"""Parts of the loader under the names that libraries import."""

from mindtorch.torch._utils import ExceptionWrapper  # noqa: F401
from mindtorch.torch.utils.data._utils import collate, fetch, worker  # noqa: F401

#: Seconds that a worker gets to finish before it is ended.
MP_STATUS_CHECK_INTERVAL = 5.0
