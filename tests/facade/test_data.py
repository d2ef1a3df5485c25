"""torch.utils.data compared with PyTorch: the same batches in the same order from the same seeds.
"""

import collections
import itertools
import pickle
import random
import warnings

import numpy as np
import pytest
import torch as real
import torch.utils.data._utils.collate

import mindtorch.torch as mine


from _loaders import BOTH, dataset, outcome, plain, same, seeded, state, stream

pytestmark = [
    pytest.mark.forks,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded"),
]


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
def test_batches_and_random_state_match_torch(options, own_generator):
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


def test_out_of_order_batches():
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


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"num_workers": 2, "persistent_workers": True}], ids=str)
@pytest.mark.parametrize("batch_size", [None, 2])
def test_sampler_iteration_count_matches_torch(options, batch_size):
    def run(T):
        class Eager(T.utils.data.Sampler):
            asked = 0

            def __iter__(self):
                Eager.asked += 1
                return iter(T.randperm(6).tolist())

            def __len__(self):
                return 6

        seeded(T, 1)
        loader = T.utils.data.DataLoader(range(6), sampler=Eager(), batch_size=batch_size, **options)
        return [list(loader), list(loader), Eager.asked, T.rand(1)]

    same(run)


def test_random_split():
    for lengths in ([3, 7], [0.35, 0.65], [0.3, 0.3, 0.4], [1 / 3, 1 / 3, 1 / 3], [0.001, 0.999], [10]):

        def run(T, lengths=lengths):
            seeded(T, 1)
            a = [list(p.indices) for p in T.utils.data.random_split(range(10), lengths)]
            b = [list(p) for p in T.utils.data.random_split(range(10), lengths, generator=T.Generator().manual_seed(4))]
            return [a, b, [type(i).__name__ for p in a for i in p]]

        same(run)


def test_worker_seeds_match_torch():
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


def test_collate_keeps_gradients_and_supports_user_types():
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


# ------------------------------------------------------------------ errors
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
def test_invalid_arguments_raise_as_in_torch(name):
    (a, _), (b, _) = (outcome(lambda T: REFUSED[name](T, T.utils.data, range(5)), T) for T in BOTH)
    assert a[0].endswith("Error") and a == b


@pytest.mark.parametrize("name", FINE)
def test_small_features_match_torch(name):
    same(lambda T: FINE[name](T, T.utils.data, range(5)))


def test_wrong_iterable_lengths_warn():
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
