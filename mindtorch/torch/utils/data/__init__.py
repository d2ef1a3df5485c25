"""torch.utils.data: datasets, samplers and the loader (https://pytorch.org/docs/stable/data.html)."""

from mindtorch.torch.utils.data import _utils  # noqa: F401
from mindtorch.torch.utils.data.dataloader import (
    DataLoader,
    _DatasetKind,
    default_collate,
    default_convert,  # noqa: F401
    get_worker_info,
)
from mindtorch.torch.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from mindtorch.torch.utils.data.distributed import DistributedSampler
from mindtorch.torch.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from mindtorch.torch.utils.data.datapipes.datapipe import (  # noqa: E402,F401
    DFIterDataPipe, IterDataPipe, MapDataPipe, functional_datapipe, guaranteed_datapipes_determinism, non_deterministic)

__all__ = ["DFIterDataPipe", "IterDataPipe", "MapDataPipe", "functional_datapipe", "guaranteed_datapipes_determinism", "non_deterministic",
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "_DatasetKind",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
]
