"""torch.utils.data against real torch: the same batches in the same order from the same seeds, and workers that never hang."""

import collections
import gc
import io
import itertools
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import time
import warnings

import numpy as np
import pytest
import torch as real
import torch.utils.data._utils.collate

import mindtorch.torch as mine
from mindtorch.torch.utils.data._utils import _transport

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded"),
]
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
            # What comes out of a worker carries a traceback with paths.
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


# ------------------------------------------------------------------ order
GRID = [
    dict(batch_size=b, shuffle=s, drop_last=d)
    for b, s, d in itertools.product((1, 4, 30), (False, True), (False, True))
]
GRID += [
    dict(batch_size=None),
    dict(batch_size=None, shuffle=True),
    dict(batch_size=None, sampler=[3, 1, 2]),
    dict(sampler=[5, 1, 9], batch_size=2),
    dict(batch_sampler=[[1, 2], [3], [4, 5, 6]]),
    dict(batch_size=5, pin_memory=True),
    dict(batch_size=4, collate_fn=len),
]
GRID += [dict(g, num_workers=w) for g, w in itertools.product(GRID[3:6] + GRID[12:14] + GRID[16:17], (1, 2))]
GRID += [
    dict(batch_size=4, shuffle=True, num_workers=2, persistent_workers=True),
    dict(batch_size=3, num_workers=3, prefetch_factor=1),
    dict(batch_size=3, num_workers=1, prefetch_factor=7, shuffle=True, timeout=20),
]


@pytest.mark.parametrize(
    "options", GRID, ids=lambda o: ",".join(f"{k}={getattr(v, '__name__', v)}" for k, v in o.items())
)
@pytest.mark.parametrize("own_generator", [False, True])
def test_batches_and_random_state_are_torchs(options, own_generator):
    results = []
    for T in BOTH:
        seeded(T, 5)
        extra = {"generator": T.Generator().manual_seed(9)} if own_generator else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loader = T.utils.data.DataLoader(dataset(T), **options, **extra)
            epochs = [[plain(b) for b in loader] for _ in range(2)]
        results.append(
            (epochs, len(loader), state(T), extra["generator"].get_state().numpy().tobytes() if extra else None)
        )
    for a, b in zip(*results):
        assert a == b


@pytest.mark.parametrize(
    "options",
    [dict(batch_size=2), dict(batch_size=2, drop_last=True), dict(batch_size=None), dict(batch_size=40)],
    ids=str,
)
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_streams(options, workers):
    def run(T):
        loader = T.utils.data.DataLoader(stream(T), num_workers=workers, persistent_workers=workers == 3, **options)
        return [list(loader), list(loader)]

    same(run)


def test_batches_as_they_come():
    for T in BOTH:
        loader = T.utils.data.DataLoader(range(40), batch_size=3, num_workers=2, in_order=False)
        assert sorted(int(i) for b in loader for i in b) == list(range(40))
        loader = T.utils.data.DataLoader(stream(T), batch_size=2, num_workers=3, in_order=False)
        assert sorted(int(i) for b in loader for i in b) == sorted([*range(7), *range(100, 103), *range(200, 210)])


SAMPLERS = {
    "random": lambda T, D: D.RandomSampler(range(10)),
    "more": lambda T, D: D.RandomSampler(range(10), num_samples=25),
    "fewer": lambda T, D: D.RandomSampler(range(10), num_samples=4),
    "with": lambda T, D: D.RandomSampler(range(10), True, 70),
    "with 64": lambda T, D: D.RandomSampler(range(10), True, 64),
    "own": lambda T, D: D.RandomSampler(range(9), generator=T.Generator().manual_seed(1)),
    "own more": lambda T, D: D.RandomSampler(range(9), num_samples=18, generator=T.Generator().manual_seed(1)),
    "subset": lambda T, D: D.SubsetRandomSampler([5, 6, 9]),
    "batch": lambda T, D: D.BatchSampler(D.RandomSampler(range(9)), 2, True),
    "batches": lambda T, D: D.BatchSampler("abcde", 2, False),
    "sequential": lambda T, D: D.SequentialSampler("abc"),
    "weighted": lambda T, D: D.WeightedRandomSampler([0.1, 0.7, 0.2], 50),
    "weights": lambda T, D: D.WeightedRandomSampler([1, 2, 3, 4], 3, False),
    "weights tensor": lambda T, D: D.WeightedRandomSampler(
        T.from_numpy(np.array([1.0, 3.0])), 9, generator=T.Generator().manual_seed(3)
    ),
} | {
    f"distributed {r} {s} {d} {n}": lambda T, D, r=r, s=s, d=d, n=n: D.DistributedSampler(range(n), 3, r, s, 4, d)
    for r, s, d, n in itertools.product((0, 2), (True, False), (True, False), (10, 2, 9))
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers(name):
    results = []
    for T in BOTH:
        seeded(T, 3)
        s = SAMPLERS[name](T, T.utils.data)
        if hasattr(s, "set_epoch"):
            s.set_epoch(2)
        results.append(([list(s), list(s)], len(s), state(T), [type(i).__name__ for i in s]))
    assert results[0] == results[1]


def test_random_split():
    for lengths in ([3, 7], [0.35, 0.65], [0.3, 0.3, 0.4], [1 / 3, 1 / 3, 1 / 3], [0.001, 0.999], [10]):

        def run(T, lengths=lengths):
            seeded(T, 1)
            a = [list(p.indices) for p in T.utils.data.random_split(range(10), lengths)]
            b = [list(p) for p in T.utils.data.random_split(range(10), lengths, generator=T.Generator().manual_seed(4))]
            return [a, b, [type(i).__name__ for p in a for i in p]]

        same(run)


def test_worker_seeds_are_torchs():
    def run(T):
        class Seeds(T.utils.data.Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, i):
                w = T.utils.data.get_worker_info()
                return (
                    w.id,
                    w.num_workers,
                    w.seed,
                    T.initial_seed(),
                    int(T.randint(0, 1 << 30, (1,)).item()),
                    random.getrandbits(30),
                    int(np.random.randint(1 << 30)),
                    w.dataset is self,
                )

        seeded(T, 11)
        loader = T.utils.data.DataLoader(
            Seeds(), batch_size=None, num_workers=2, collate_fn=tuple, persistent_workers=True
        )
        return [list(loader), list(loader), T.utils.data.get_worker_info()]

    same(run)


# ------------------------------------------------------------------ collate and convert
Pair = collections.namedtuple("Pair", "a b")


class MyList(list):
    pass


class MyDict(dict):
    pass


BATCHES = {
    "numbers": lambda T: [1, 2],
    "bools": lambda T: [True, False],
    "mixed": lambda T: [1, 2.5],
    "bool and int": lambda T: [True, 2],
    "floats": lambda T: [1.0, 2.0],
    "np": lambda T: [np.float32(1), np.float32(2)],
    "np bool": lambda T: [np.bool_(1)],
    "strings": lambda T: ["a", "b"],
    "bytes": lambda T: [b"a"],
    "none": lambda T: [None],
    "pairs": lambda T: [Pair(1, 2), Pair(3, 4)],
    "tuples": lambda T: [(1, "a"), (2, "b")],
    "lists": lambda T: [MyList([1, 2]), MyList([3, 4])],
    "dicts": lambda T: [MyDict(a=1), MyDict(a=2)],
    "ordered": lambda T: [collections.OrderedDict(a=1, b=2.0)] * 2,
    "default": lambda T: [collections.defaultdict(int, a=1)] * 2,
    "uneven": lambda T: [[1, 2], [3]],
    "np strings": lambda T: [np.array(["a"])],
    "np objects": lambda T: [np.array([None])],
    "arrays": lambda T: [np.zeros((2, 3)), np.ones((2, 3))],
    "0-d arrays": lambda T: [np.array(3), np.array(4)],
    "uint16": lambda T: [np.zeros(2, np.uint16)],
    "shapes": lambda T: [np.zeros(2), np.zeros(3)],
    "empty": lambda T: [],
    "sets": lambda T: [{1}],
    "range": lambda T: [range(2)] * 2,
    "complex": lambda T: [1j],
    "too big": lambda T: [2**63],
    "deque": lambda T: [collections.deque([1, 2])] * 2,
    "missing": lambda T: [{"a": 1}, {"b": 2}],
    "extra": lambda T: [{"a": 1}, {"a": 2, "b": 2}],
    "tensors": lambda T: [T.from_numpy(np.ones((2, 3), np.float16))] * 3,
    "scalars": lambda T: [T.from_numpy(np.array(1.5))] * 2,
    "tensor shapes": lambda T: [T.from_numpy(np.ones(2)), T.from_numpy(np.ones(3))],
    "dtypes": lambda T: [T.from_numpy(np.ones(2, np.float32)), T.from_numpy(np.ones(2, np.int64))],
    "transposed": lambda T: [T.from_numpy(np.arange(6.0).reshape(2, 3)).t()] * 2,
    "no elements": lambda T: [T.from_numpy(np.ones((0, 2)))] * 2,
    "bfloat16": lambda T: [T.from_numpy(np.ones(2, np.float32)).to(T.bfloat16)] * 2,
    "bytearray": lambda T: [bytearray(b"ab")] * 2,
    "nested": lambda T: [{"a": [T.from_numpy(np.ones(1)), (1, {"b": "x"})]}] * 2,
    "empty tuple": lambda T: [(), ()],
    "empty dict": lambda T: [{}, {}],
}


@pytest.mark.parametrize("name", BATCHES)
def test_default_collate(name):
    same(lambda T: T.utils.data.default_collate(BATCHES[name](T)))


@pytest.mark.parametrize(
    "value",
    [
        1,
        "abc",
        np.zeros(2),
        np.float32(2),
        np.array(["a"]),
        np.str_("a"),
        (1, np.zeros(1)),
        Pair(1, np.zeros(1)),
        MyList([np.zeros(1)]),
        MyDict(a=np.zeros(1)),
        range(3),
        {1},
        None,
        np.array(2),
        {"a": [np.ones(2)]},
    ],
    ids=repr,
)
def test_default_convert(value):
    same(lambda T: T.utils.data.default_convert(value))


def test_collate_keeps_gradients_and_takes_user_types():
    for T in BOTH:
        p = T.nn.Parameter(T.from_numpy(np.ones(2)))
        b = T.utils.data.default_collate([p, p])
        assert b.requires_grad
        b.sum().backward()
        assert p.grad.tolist() == [2, 2]
        collate = T.utils.data._utils.collate
        found = collate.collate(
            [{1, 2}, {3}], collate_fn_map={set: lambda batch, *, collate_fn_map=None: sorted(set().union(*batch))}
        )
        assert found == [1, 2, 3]


# ------------------------------------------------------------------ refusals
class Counted(real.utils.data.IterableDataset):
    pass


REFUSED = {
    "workers": lambda T, D, r: D.DataLoader(r, num_workers=-1),
    "timeout": lambda T, D, r: D.DataLoader(r, timeout=-1),
    "persistent": lambda T, D, r: D.DataLoader(r, persistent_workers=True),
    "stream shuffle": lambda T, D, r: D.DataLoader(stream(T), shuffle=True),
    "stream sampler": lambda T, D, r: D.DataLoader(stream(T), sampler=[1]),
    "stream batches": lambda T, D, r: D.DataLoader(stream(T), batch_sampler=[[1]]),
    "sampler and shuffle": lambda T, D, r: D.DataLoader(r, sampler=[1], shuffle=True),
    "batches and size": lambda T, D, r: D.DataLoader(r, batch_sampler=[[1]], batch_size=3),
    "batches and shuffle": lambda T, D, r: D.DataLoader(r, batch_sampler=[[1]], shuffle=True),
    "no batch, drop": lambda T, D, r: D.DataLoader(r, batch_size=None, drop_last=True),
    "late size": lambda T, D, r: setattr(D.DataLoader(r), "batch_size", 3),
    "late dataset": lambda T, D, r: setattr(D.DataLoader(r), "dataset", 3),
    "context": lambda T, D, r: D.DataLoader(r, multiprocessing_context="fork"),
    "context name": lambda T, D, r: D.DataLoader(r, num_workers=1, multiprocessing_context="x"),
    "context type": lambda T, D, r: D.DataLoader(r, num_workers=1, multiprocessing_context=3),
    "size 0": lambda T, D, r: D.DataLoader(r, batch_size=0),
    "size 1.5": lambda T, D, r: D.DataLoader(r, batch_size=1.5),
    "keyword": lambda T, D, r: D.DataLoader(r, foo=1),
    "nothing to shuffle": lambda T, D, r: D.DataLoader([], shuffle=True),
    "no samples": lambda T, D, r: D.RandomSampler([]),
    "0 samples": lambda T, D, r: D.RandomSampler(r, num_samples=0),
    "replacement": lambda T, D, r: D.RandomSampler(r, replacement=1),
    "batch 0": lambda T, D, r: D.BatchSampler(r, 0, False),
    "drop": lambda T, D, r: D.BatchSampler(r, 2, 1),
    "no weighted": lambda T, D, r: D.WeightedRandomSampler([1, 2], 0),
    "weights 2-d": lambda T, D, r: D.WeightedRandomSampler([[1, 2]], 1),
    "weights replacement": lambda T, D, r: D.WeightedRandomSampler([1, 2], 2, replacement=3),
    "weights too many": lambda T, D, r: list(D.WeightedRandomSampler([1, 2], 3, False)),
    "split sum": lambda T, D, r: D.random_split(r, [1, 2]),
    "split fractions": lambda T, D, r: D.random_split(r, [0.5, 0.4]),
    "split negative": lambda T, D, r: D.random_split(r, [-0.5, 1.5]),
    "tensor sizes": lambda T, D, r: D.TensorDataset(T.from_numpy(np.ones(2)), T.from_numpy(np.ones(3))),
    "stack sizes": lambda T, D, r: D.StackDataset([1, 2], [1]),
    "stack nothing": lambda T, D, r: D.StackDataset(),
    "concat nothing": lambda T, D, r: D.ConcatDataset([]),
    "concat stream": lambda T, D, r: D.ConcatDataset([stream(T)]),
    "concat -4": lambda T, D, r: D.ConcatDataset([[1, 2], [3]])[-4],
    "concat 3": lambda T, D, r: D.ConcatDataset([[1, 2], [3]])[3],
    "chain": lambda T, D, r: list(D.ChainDataset([[1]])),
    "abstract": lambda T, D, r: D.Dataset()[0],
    "abstract length": lambda T, D, r: len(D.Dataset()),
    "rank": lambda T, D, r: D.DistributedSampler(r, num_replicas=2, rank=2),
    "subset of a range by list": lambda T, D, r: D.Subset(r, [3, 1])[[0, 1]],
    "length of batches": lambda T, D, r: len(D.DataLoader(r, batch_sampler=iter([[1]]))),
    "abstract sampler": lambda T, D, r: iter(D.Sampler()),
}
FINE = {
    "stack tuple": lambda T, D, r: D.StackDataset([1, 2], [3, 4])[1],
    "stack dict": lambda T, D, r: D.StackDataset(a=[1, 2], b=[3, 4])[1],
    "stack many": lambda T, D, r: D.StackDataset([1, 2], [3, 4]).__getitems__([1, 0]),
    "concat": lambda T, D, r: [D.ConcatDataset([[1, 2], [3]])[i] for i in (0, 2, -1, -3)],
    "sizes": lambda T, D, r: D.ConcatDataset([[1, 2], [3]]).cumulative_sizes,
    "chain": lambda T, D, r: list(D.ChainDataset([stream(T), stream(T)])),
    "sum": lambda T, D, r: type(D.TensorDataset(T.from_numpy(np.ones(1))) + [1]).__name__,
    "stream sum": lambda T, D, r: type(stream(T) + stream(T)).__name__,
    "subset": lambda T, D, r: [list(D.Subset(r, [3, 1])), D.Subset("abc", [2, 0]).__getitems__([1, 0])],
    "rows": lambda T, D, r: D.TensorDataset(T.from_numpy(np.arange(3)))[0:2],
    "text": lambda T, D, r: list(D.DataLoader("abc", batch_size=2)),
    "empty": lambda T, D, r: list(D.DataLoader([])),
    "length": lambda T, D, r: len(D.DataLoader(r, batch_size=2)),
    "drop length": lambda T, D, r: len(D.DataLoader(r, batch_size=2, drop_last=True)),
    "pin": lambda T, D, r: list(D.DataLoader(r, pin_memory=True)),
    "workers later": lambda T, D, r: setattr(D.DataLoader(r), "num_workers", 1),
    "vars": lambda T, D, r: {k: v for k, v in vars(D.DistributedSampler(r, 2, 1)).items()},
    "batches of pairs": lambda T, D, r: list(
        D.DataLoader(D.TensorDataset(T.from_numpy(np.arange(5)), T.from_numpy(np.ones((5, 2)))), 2)
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_torch_does(name):
    (a, _), (b, _) = (outcome(lambda T: REFUSED[name](T, T.utils.data, range(5)), T) for T in BOTH)
    assert a[0].endswith("Error") and a == b


@pytest.mark.parametrize("name", FINE)
def test_small_things(name):
    same(lambda T: FINE[name](T, T.utils.data, range(5)))


def test_wrong_lengths_of_streams_are_told():
    def run(T, workers):
        class Short(T.utils.data.IterableDataset):
            def __iter__(self):
                return iter(range(3))

            def __len__(self):
                return 2

            def __repr__(self):
                return "Short"

        loader = T.utils.data.DataLoader(Short(), batch_size=1, num_workers=workers)
        return [len(loader), list(loader)]

    for workers in (0, 1):
        (a, warned_a), (b, warned_b) = (outcome(lambda T, n=workers: run(T, n), T) for T in BOTH)
        assert a == b and len(warned_a) == len(warned_b) >= 1
        assert warned_b[0][1].startswith("Length of IterableDataset Short was reported to be 2")


def test_loaders_cannot_be_pickled_while_running_but_datasets_can():
    it = iter(mine.utils.data.DataLoader([1]))
    with pytest.raises(NotImplementedError):
        pickle.dumps(it)
    d = pickle.loads(
        pickle.dumps(mine.utils.data.Subset(mine.utils.data.TensorDataset(mine.from_numpy(np.arange(4.0))), [3, 1]))
    )
    assert [t[0].item() for t in d] == [3, 1]


# ------------------------------------------------------------------ workers
def D(**kw):
    return mine.utils.data.DataLoader(**kw)


def children():
    found = set()
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children") as f:
            found.update(int(p) for p in f.read().split() if alive(p))
    return found


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(autouse=True)
def no_process_is_left():
    before = children()
    yield
    if children() - before:
        gc.collect()  # a loader in an exception's traceback
    end = time.monotonic() + 8
    while children() - before and time.monotonic() < end:
        time.sleep(0.05)
    assert not children() - before


class Failing:
    def __init__(self, what, at=5):
        self.what, self.at = what, at

    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == self.at:
            self.what()
        return i


def planted():
    raise ValueError("planted: item five is damaged")


def by_key():
    return {}["planted"]


class Two(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)


def two():
    raise Two(1, 2)


def test_an_exception_arrives_with_its_traceback():
    with pytest.raises(ValueError) as e:
        list(D(dataset=Failing(planted), batch_size=2, num_workers=2))
    assert "Caught ValueError in DataLoader worker process 0" in str(e.value) and "in planted" in str(e.value)
    with pytest.raises(KeyError, match="planted") as e:
        list(D(dataset=Failing(by_key), num_workers=1))
    assert str(e.value).count("\n") > 3
    with pytest.raises(RuntimeError, match="in two"):
        list(D(dataset=Failing(two), num_workers=1))
    with pytest.raises(ValueError, match="^planted: item five is damaged$"):
        list(D(dataset=Failing(planted)))
    loader = D(dataset=Failing(planted), batch_size=2, num_workers=2)
    it, got = iter(loader), []
    while True:
        try:
            got.append(next(it).tolist())
        except StopIteration:
            break
        except ValueError:
            got.append("error")
    assert got == [[0, 1], [2, 3], "error", [6, 7]]


def test_what_cannot_be_sent_is_reported():
    class Local(Exception):
        pass

    def local():
        raise Local("of a function")

    with pytest.raises(Exception, match="Local") as e:
        list(D(dataset=Failing(local), num_workers=1))
    assert "of a function" in str(e.value) or "pickle" in str(e.value)
    with pytest.raises(Exception, match="pickle"):
        list(D(dataset=[lambda: 1], num_workers=1, batch_size=None))
    with pytest.raises(RuntimeError, match="detach"):
        w = mine.nn.Parameter(mine.from_numpy(np.ones(2)))
        list(D(dataset=range(2), num_workers=1, collate_fn=lambda b: w * 2))


def test_init_function_and_its_errors():
    def init(i):
        global STARTED
        STARTED = 40 + i

    got = [int(x) for x in D(dataset=range(4), num_workers=2, worker_init_fn=init, collate_fn=lambda b: STARTED)]
    assert got == [40, 41, 40, 41]
    with pytest.raises(ValueError, match="planted"):
        list(D(dataset=range(4), num_workers=2, worker_init_fn=lambda i: planted()))


STARTED = 0


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "how, text",
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by signal: Killed"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "killed by signal"),
        (lambda: os._exit(3), "exit code 3"),
        (lambda: sys.exit(0), "exited unexpectedly"),
    ],
)
def test_a_dead_worker_is_reported_at_once(how, text, workers):
    start = time.monotonic()
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid.*" + text):
        list(D(dataset=Failing(how), batch_size=2, num_workers=workers))
    assert time.monotonic() - start < 4


def test_a_worker_killed_from_outside():
    def wait():
        time.sleep(30)

    for persistent in (False, True):
        it = iter(D(dataset=Failing(wait), batch_size=2, num_workers=2, persistent_workers=persistent))
        next(it)
        for w in it._workers:
            os.kill(w.pid, signal.SIGKILL)
        start = time.monotonic()
        with pytest.raises(RuntimeError, match="Killed"):
            list(it)
        assert time.monotonic() - start < 4
        with pytest.raises(StopIteration):
            next(it)


def test_timeout():
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="DataLoader timed out after 0.4 seconds"):
        list(D(dataset=Failing(lambda: time.sleep(20)), num_workers=1, timeout=0.4))
    assert time.monotonic() - start < 4


def test_a_loader_can_be_left_early_and_used_again():
    for persistent in (False, True):
        loader = D(dataset=range(60), batch_size=3, num_workers=2, persistent_workers=persistent)
        for n in (0, 1, 7):
            for i, b in enumerate(loader):
                assert b.tolist() == [3 * i, 3 * i + 1, 3 * i + 2]
                if i == n:
                    break
        assert [x for b in loader for x in b.tolist()] == list(range(60))


def test_persistent_workers_stay_and_keep_their_state():
    class Counting(Failing):
        seen = 0

        def __getitem__(self, i):
            Counting.seen += 1
            return os.getpid(), Counting.seen

    loader = D(dataset=Counting(planted), batch_size=None, num_workers=2, persistent_workers=True, collate_fn=tuple)
    first, second = list(loader), list(loader)
    assert {p for p, _ in first} == {p for p, _ in second} and max(n for _, n in second) == 8


class Large(Failing):
    """Samples that need shared memory, memory of odd layouts, and a long message."""

    def __getitem__(self, i):
        big = np.full((100, 120), i, np.float32)
        return {
            "big": mine.from_numpy(big),
            "array": np.full(20_000, i),
            "text": "x" * 40_000 + str(i),
            "half": mine.from_numpy(big).to(mine.bfloat16),
            "turned": mine.from_numpy(big).t(),
            "tiny": i,
            "every": mine.from_numpy(big)[::2, ::3],
        }


def _is(b, items):
    items = np.array(items)
    for k, shape in (("big", (100, 120)), ("turned", (120, 100)), ("every", (50, 40)), ("array", (20_000,))):
        assert np.array_equal(
            b[k].numpy(), np.broadcast_to(items.reshape(-1, *[1] * len(shape)), (len(items), *shape))
        ), k
    assert b["half"].dtype == mine.bfloat16 and np.array_equal(b["half"].float().numpy()[:, 3, 4], items)
    assert list(b["text"]) == ["x" * 40_000 + str(i) for i in items] and b["tiny"].tolist() == list(items)


def test_shared_memory_is_reused_but_never_while_it_is_looked_at():
    loader = D(dataset=Large(planted), batch_size=2, num_workers=2, persistent_workers=True)
    kept, views = [], []
    for epoch in range(12):
        for i, b in enumerate(loader):
            _is(b, [2 * i, 2 * i + 1])
            if (epoch + i) % 3 == 0:
                kept.append((b, i))
            else:
                views.append((b["big"][1:].transpose(0, 2)[5], 2 * i + 1))
                b["turned"].zero_()
                b["array"][:] = -1
    for b, i in kept:
        _is(b, [2 * i, 2 * i + 1])
    for v, x in views:
        assert (v.numpy() == x).all()
    assert _transport.CAN_SHARE and any(w.receiver._maps for w in loader._iterator._team)
    del kept, views, b, v
    for _ in range(20):
        for i, b in enumerate(loader):
            _is(b, [2 * i, 2 * i + 1])
    # What is not needed any more has been given up.
    assert max(len(w.receiver._maps) for w in loader._iterator._team) < 60


def test_nothing_leaks():
    def fds():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    list(D(dataset=Large(planted), batch_size=2, num_workers=2))
    before = fds()
    for _ in range(3):
        for _b in D(dataset=Large(planted), batch_size=2, num_workers=2):
            pass
        it = iter(D(dataset=Large(planted), batch_size=2, num_workers=2))
        next(it)
        del it
    del _b
    assert fds() <= before + 1 and not [n for n in os.listdir("/dev/shm") if "mindtorch" in n]


@pytest.mark.parametrize("limit", [0, 3])
def test_batches_arrive_without_enough_shared_memory(monkeypatch, limit):
    monkeypatch.setattr(_transport, "_MAX_SEGMENTS", limit)
    monkeypatch.setattr(_transport, "CAN_SHARE", limit > 0)
    kept = list(D(dataset=Large(planted), batch_size=2, num_workers=2))
    for i, b in enumerate(kept):
        _is(b, [2 * i, 2 * i + 1])


def test_without_collation_layouts_and_flags_survive():
    t = mine.from_numpy(np.arange(24_000.0).reshape(20, 30, 40))
    samples = [
        t,
        t.permute(2, 0, 1),
        t[:, ::2],
        t[3],
        mine.nn.Parameter(t[0]),
        t[0, 0, 0],
        mine.from_numpy(np.arange(4.0)).requires_grad_(),
        mine.from_numpy(np.zeros((0, 4))),
    ]
    got = list(D(dataset=samples, batch_size=None, num_workers=1))
    for a, b in zip(samples, got, strict=True):
        assert type(a) is type(b) and a.requires_grad == b.requires_grad and a.tolist() == b.tolist()
    assert got[1].stride() == samples[1].stride()


def test_ops_in_workers_after_ops_here():
    x = mine.from_numpy(np.random.RandomState(0).randn(4, 8).astype(np.float32))
    layer = mine.nn.Linear(8, 8)
    layer(x).sum().backward()

    class Works(Failing):
        def __getitem__(self, i):
            with mine.no_grad():
                return layer(x * i).relu().sum(0)

    start = time.monotonic()
    got = mine.cat(list(D(dataset=Works(planted), batch_size=2, num_workers=2)))
    want = mine.stack([Works(planted)[i] for i in range(8)])
    assert np.allclose(got.detach().numpy(), want.detach().numpy(), atol=1e-5) and time.monotonic() - start < 20


SCRIPT = """
    import os, sys, time
    from mindtorch.tools import mstorch_enable
    import torch, numpy as np
    from torch.utils.data import DataLoader, Dataset, get_worker_info

    class Items(Dataset):
        def __len__(self):
            return 400

        def __getitem__(self, i):
            time.sleep({sleep})
            assert os.path.basename(os.path.dirname(torch.__file__)) == "torch" and "mindtorch" in torch.__file__
            return torch.full((50, 50), float(i)), torch.tensor([get_worker_info().id])

    def main():
        it = iter(DataLoader(Items(), batch_size=4, num_workers=2, multiprocessing_context="{context}", worker_init_fn=started))
        if {sleep} < 1:
            x, w = next(it)
            assert x[:, 0, 0].tolist() == [0, 1, 2, 3] and w.tolist() == [[0]] * 4
        print("READY", *[p.pid for p in it._workers], flush=True)
        {then}

    def started(i):
        assert get_worker_info().num_workers == 2

    if __name__ == "__main__":
        main()
"""


@pytest.mark.parametrize(
    "context, sleep, then, end",
    [
        ("fork", 0.01, "list(it)", signal.SIGINT),
        ("fork", 0.01, "list(it)", signal.SIGKILL),
        ("fork", 30, "list(it)", signal.SIGINT),
        ("fork", 0.001, "list(it)", None),
        ("fork", 0.01, "sys.exit(0)", None),
        ("spawn", 0.001, "list(it)", None),
        pytest.param("forkserver", 0.01, "list(it)", signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param("spawn", 0.01, "list(it)", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_no_process_outlives_the_script(tmp_path, context, sleep, then, end):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT.format(context=context, sleep=sleep, then=then)))
    root = os.path.dirname(os.path.dirname(os.path.abspath(mine.__path__[0])))
    p = subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    line = p.stdout.readline()
    assert line.startswith("READY"), p.communicate()[1]
    workers = [int(x) for x in line.split()[1:]]
    assert len(workers) == 2
    if end is not None:
        time.sleep(0.3)
        # Ctrl-C goes to all processes of a terminal.
        (os.killpg if end == signal.SIGINT else os.kill)(p.pid, end)
    _, err = p.communicate(timeout=30)
    assert p.returncode == {None: 0, signal.SIGINT: -signal.SIGINT, signal.SIGKILL: -signal.SIGKILL}[end], err
    limit = time.monotonic() + 8
    while any(map(alive, workers)) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not any(map(alive, workers))
    if end is None:
        assert not err.strip(), err
    elif end == signal.SIGINT:
        assert err.count("KeyboardInterrupt") == 1


@pytest.mark.slow
def test_many_kills():
    for i in range(50):
        it = iter(
            D(
                dataset=Failing(lambda: time.sleep(0.002), at=i % 8),
                batch_size=1 + i % 3,
                num_workers=1 + i % 2,
                persistent_workers=bool(i % 3),
            )
        )
        time.sleep(random.Random(i).uniform(0, 0.03))
        os.kill(it._workers[i % len(it._workers)].pid, signal.SIGKILL)
        start = time.monotonic()
        try:
            list(it)
        except RuntimeError as e:
            assert "Killed" in str(e)
        assert time.monotonic() - start < 4


@pytest.mark.slow
def test_two_hundred_loaders():
    r = random.Random(1)
    for k in range(200):
        n, workers = r.randint(1, 40), r.choice([0, 0, 1, 2])
        options = dict(batch_size=r.choice([1, 2, 5, None]), shuffle=r.random() < 0.5, num_workers=workers)
        if options["batch_size"]:
            options["drop_last"] = r.random() < 0.3
        if workers:
            options.update(prefetch_factor=r.randint(1, 4), persistent_workers=r.random() < 0.5)
        results = []
        for T in BOTH:
            seeded(T, k)
            loader = T.utils.data.DataLoader(dataset(T, n), **options)
            results.append(([[plain(b) for b in loader] for _ in range(2)], state(T)))
        assert results[0] == results[1], options
    assert io.BytesIO().read() == b""
