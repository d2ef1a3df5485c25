"""One program on both sides, for the tests of torch.utils.data."""

import collections
import random
import warnings

import numpy as np
import torch as real
import torch.utils.data._utils.collate

import mindtorch.torch as mine


BOTH = (real, mine)


def plain(x):
    if isinstance(x, (real.Tensor, mine.Tensor)):
        t = x.detach()
        name = str(t.dtype)
        return name, tuple(t.shape), (t.float() if "bfloat16" in name else t).numpy().tolist()
    if isinstance(x, dict):
        return type(x).__name__, [(k, plain(v)) for k, v in x.items()]
    if isinstance(x, (list, tuple, collections.deque)):
        return type(x).__name__, [plain(v) for v in x]
    if isinstance(x, np.ndarray):
        return "ndarray", str(x.dtype), x.tolist()
    return type(x).__name__, repr(x)


def outcome(f, T):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", message="This DataLoader will create|.*multi-threaded")
        try:
            r = plain(f(T))
        except Exception as e:
            # An error from a worker includes a traceback with paths.
            r = type(e).__name__, str(e).partition("Original Traceback")[0]
    return r, [(w.category.__name__, str(w.message)) for w in seen]


def same(f):
    a, b = (outcome(f, T) for T in BOTH)
    assert a == b


def seeded(T, seed):
    T.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def state(T):
    return T.get_rng_state().numpy().tobytes()


def dataset(T, n=23):
    class Rows(T.utils.data.Dataset):
        def __len__(self):
            return n

        def __getitem__(self, i):
            x = T.from_numpy(np.full((2, 3), i, np.float32))
            return {
                "x": x.t(),
                "i": i,
                "name": f"n{i}",
                "pair": (float(i), np.int32(i)),
                "a": np.arange(i, i + 2),
                "flag": i % 2 == 0,
            }

    return Rows()


def stream(T, lengths=(7, 3, 10)):
    class Stream(T.utils.data.IterableDataset):
        def __iter__(self):
            w = T.utils.data.get_worker_info()
            i, n = (w.id, w.num_workers) if w else (0, 1)
            assert n <= len(lengths)
            return iter([100 * i + k for k in range(lengths[i])])

    return Stream()
