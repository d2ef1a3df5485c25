"""torch.utils.data.datapipes: composed pipes match PyTorch's, on their own and under a DataLoader.
"""
import atexit
import pathlib
import shutil
import tempfile

import pytest
import torch as real
import torch.utils.data.datapipes.iter
import torch.utils.data.datapipes.map  # noqa: F401

import mindtorch.torch as mine

from _loaders import outcome, same

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded"),
]


def I(T, n=10):  # noqa: E743
    return T.utils.data.datapipes.iter.IterableWrapper(list(range(n)))


def M(T, n=10):
    return T.utils.data.datapipes.map.SequenceWrapper(list(range(n)))


def both_ways(p):
    return [list(p), list(p), len(p)]


def tens(x):
    return x * 10


def even(x):
    return x % 2 == 0


def files(T, masks, **options):
    names, there = T.utils.data.datapipes.iter.FileLister(str(FOLDER), masks, **options), []
    for name, text in names.open_files(mode="rb").read_from_stream(3):
        there.append((name[len(str(FOLDER)):], text))
    return there


FOLDER = pathlib.Path(tempfile.mkdtemp())
atexit.register(shutil.rmtree, FOLDER)
(FOLDER / "under").mkdir()
for _path in ("b.txt", "a.txt", "b.bin", "under/c.txt", "under/b.bin"):
    (FOLDER / _path).write_bytes(_path.encode())

ITER = {
    "wrapper": lambda T: both_ways(I(T)),
    "map": lambda T: both_ways(I(T).map(tens)),
    "map of a column": lambda T: list(I(T, 3).zip(I(T, 3)).map(tens, input_col=1)),
    "map to a column": lambda T: list(I(T, 3).zip(I(T, 3)).map(tens, input_col=1, output_col=0)),
    "map to a new column": lambda T: list(I(T, 3).zip(I(T, 3)).map(tens, input_col=1, output_col=-1)),
    "map of columns": lambda T: list(I(T, 3).zip(I(T, 3)).map(lambda a, b: a + b, input_col=[0, 1])),
    "map of a dict": lambda T: list(I(T, 3).map(lambda x: {"a": x}).map(tens, input_col="a", output_col="b")),
    "filter": lambda T: list(I(T).filter(even)),
    "filter of a column": lambda T: list(I(T, 4).zip(I(T, 4)).filter(even, input_col=0)),
    "filter without bool": lambda T: list(I(T).filter(tens)),
    "filter has no length": lambda T: len(I(T).filter(even)),
    "batch": lambda T: [list(b) for b in I(T).batch(3)] + [len(I(T).batch(3))],
    "batch, drop": lambda T: [list(b) for b in I(T).batch(3, drop_last=True)] + [len(I(T).batch(3, drop_last=True))],
    "batch of 0": lambda T: I(T).batch(0),
    "unbatch": lambda T: list(I(T).batch(3).unbatch()),
    "unbatch all": lambda T: list(I(T).batch(2).batch(2).unbatch(unbatch_level=-1)),
    "unbatch too much": lambda T: list(I(T).unbatch(unbatch_level=2)),
    "collate": lambda T: list(I(T).batch(4).collate()),
    "collate by": lambda T: list(I(T).batch(4).collate(collate_fn=sum)),
    "concat": lambda T: both_ways(I(T, 3).concat(I(T, 2))),
    "zip": lambda T: both_ways(I(T, 3).zip(I(T, 2))),
    "mux": lambda T: both_ways(I(T, 3).mux(I(T, 2).map(tens))),
    "sharding": lambda T: both_ways(I(T).sharding_filter()),
    "not there": lambda T: I(T).nothing(),
    "shuffle": lambda T: [T.manual_seed(3) and None, list(I(T, 20).shuffle()), list(I(T, 20).shuffle(buffer_size=4))],
    "shuffle, seeded": lambda T: list(I(T, 20).shuffle(buffer_size=7).set_seed(5)),
    "shuffle of 0": lambda T: I(T).shuffle(buffer_size=0),
    "sampler": lambda T: both_ways(T.utils.data.datapipes.iter.Sampler(I(T), T.utils.data.SequentialSampler)),
    "sampler without a length": lambda T: T.utils.data.datapipes.iter.Sampler(I(T).filter(even)),
    "files": lambda T: files(T, ""),
    "files by name": lambda T: files(T, ["*.txt", "b*"], recursive=True),
    "files in folders": lambda T: files(T, "*.txt", recursive=True),
    "files, length": lambda T: [len(T.utils.data.datapipes.iter.FileLister(".", length=3)), len(T.utils.data.datapipes.iter.FileLister("."))],
    "files of a mode": lambda T: T.utils.data.datapipes.iter.FileOpener(I(T), mode="w"),
    "no paths": lambda T: list(I(T).open_files()),
    "names": lambda T: [type(p).__name__ for p in (I(T), I(T).map(tens), I(T).batch(2), I(T).shuffle(), I(T).zip(I(T)))],
    "class of a part": lambda T: list(__import__(T.__name__ + ".utils.data.datapipes.iter.callable", fromlist=["x"]).MapperIterDataPipe(I(T), tens)),
    "loader": lambda T: list(T.utils.data.DataLoader(I(T).map(tens), batch_size=4)),
    "workers": lambda T: list(T.utils.data.DataLoader(I(T).sharding_filter().map(tens), batch_size=2, num_workers=2)),
}
MAP = {
    "wrapper": lambda T: [M(T)[3], len(M(T)), M(T)[10]],
    "map": lambda T: [M(T).map(tens)[3], len(M(T).map(tens))],
    "batch": lambda T: [[list(M(T).batch(3)[i]) for i in range(4)], len(M(T).batch(3))],
    "batch outside": lambda T: M(T).batch(3)[4],
    "concat": lambda T: [M(T, 3).concat(M(T, 4))[i] for i in (0, 2, 3, 6)],
    "concat outside": lambda T: M(T, 3).concat(M(T, 4))[7],
    "shuffle": lambda T: [T.manual_seed(3) and None, list(M(T).shuffle()), list(M(T).shuffle(indices=[4, 2, 9]))],
    "shuffle, seeded": lambda T: [list(M(T).shuffle().set_seed(0)), list(M(T).shuffle().set_shuffle(False)), len(M(T).shuffle())],
    "zip": lambda T: [M(T, 3).zip(M(T, 4))[2], len(M(T, 3).zip(M(T, 4)))],
    "loader": lambda T: list(T.utils.data.DataLoader(M(T).map(tens), batch_size=4, num_workers=2)),
}


@pytest.mark.parametrize("name", ITER)
def test_iter_pipes(name):
    kinds = [outcome(ITER[name], T)[0] for T in (real, mine)]
    if isinstance(kinds[0], tuple) and kinds[0][0].endswith(("Error", "Exception")):
        assert kinds[0][0] == kinds[1][0], kinds
    else:
        same(ITER[name])


@pytest.mark.parametrize("name", MAP)
def test_map_pipes(name):
    kinds = [outcome(MAP[name], T)[0] for T in (real, mine)]
    assert kinds[0][0] == kinds[1][0] and (kinds[0][0].endswith("Error") or kinds[0] == kinds[1]), kinds


def test_user_defined_datapipes():
    results = []
    for T in (real, mine):
        @T.utils.data.functional_datapipe("doubled_for_a_test")
        class Doubled(T.utils.data.IterDataPipe):
            def __init__(self, source):
                self.source = source

            def __iter__(self):
                for x in self.source:
                    yield 2 * x

        results.append(list(I(T, 4).doubled_for_a_test().map(tens)))
        with pytest.raises(Exception, match="already taken"):
            T.utils.data.functional_datapipe("doubled_for_a_test")(Doubled)
    assert results[0] == results[1]


def test_missing_datapipes_raise():
    with pytest.raises(NotImplementedError, match="demux"):
        I(mine).demux(2, even)
    with pytest.raises(NotImplementedError, match="groupby"):
        I(mine).groupby(even)
    with pytest.raises(NotImplementedError, match="ForkerIterDataPipe"):
        mine.utils.data.datapipes.iter.Forker(I(mine), 2)
