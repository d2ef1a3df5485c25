"""torch.distributed.elastic.multiprocessing."""
from mindtorch.torch.distributed.elastic.multiprocessing import errors  # noqa: F401
from mindtorch.torch.distributed.elastic.multiprocessing.errors import (ChildFailedError, ProcessFailure, record)  # noqa: F401
