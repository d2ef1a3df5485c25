"""mindspore.dataset pipelines in mindtorch training loops, and mindtorch datasets and loaders under
ms.Model.train."""
import mindspore as ms
import mindspore.dataset as ds
import mindspore.nn as msnn
import numpy as np
import pytest
import torch as real

import mindtorch.torch as mine

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded"),
]

X = np.random.RandomState(0).randn(64, 4).astype(np.float32)
Y = (X.sum(1) > 0).astype(np.int32)
W = np.random.RandomState(1).randn(2, 4).astype(np.float32)


class Rows(mine.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return mine.from_numpy(X[i]) * 2, mine.tensor(Y[i])


def facade_loop(batches, T=mine):
    """Returns the losses of SGD steps over batches, and the final weights."""
    net = T.nn.Linear(4, 2, bias=False)
    net.load_state_dict({"weight": T.from_numpy(W.copy())})
    opt, losses = T.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), []
    for x, y in batches:
        loss = T.nn.functional.cross_entropy(net(x), y.long())
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses, net.weight.detach().numpy()


def reference():
    batches = [(real.from_numpy(X[i:i + 16] * 2), real.from_numpy(Y[i:i + 16])) for i in range(0, 64, 16)]
    return facade_loop(batches * 2, real)


@pytest.mark.parametrize("how", ["tuple", "dict", "numpy"])
def test_mindspore_pipeline_feeds_a_torch_loop(how):
    pipe = ds.NumpySlicesDataset({"x": X, "y": Y}, shuffle=False).map(lambda a: a * 2, input_columns="x").batch(16)

    def batches():
        for _ in range(2):
            if how == "tuple":
                yield from pipe.create_tuple_iterator(num_epochs=1)
            elif how == "dict":
                yield from ((r["x"], r["y"]) for r in pipe.create_dict_iterator(num_epochs=1))
            else:
                for r in pipe.create_dict_iterator(num_epochs=1, output_numpy=True):
                    yield mine.from_numpy(r["x"]), mine.from_numpy(r["y"])

    losses, weight = facade_loop(batches())
    want, want_weight = reference()
    assert np.allclose(losses, want, atol=1e-5) and np.allclose(weight, want_weight, atol=1e-5) and len(losses) == 8


SOURCES = {
    "dataset": lambda: ds.GeneratorDataset(Rows(), ["x", "y"], shuffle=False).batch(16),
    "dataset, 2 threads": lambda: ds.GeneratorDataset(
        Rows(), ["x", "y"], shuffle=False, num_parallel_workers=2, python_multiprocessing=False).batch(16),
    "loader": lambda: ds.GeneratorDataset(mine.utils.data.DataLoader(Rows(), batch_size=16), ["x", "y"]),
    "loader, 2 workers": lambda: ds.GeneratorDataset(started(), ["x", "y"]),
}


def started():
    """A loader whose workers are already running: they must not be forked in a thread of
    mindspore.dataset."""
    loader = mine.utils.data.DataLoader(Rows(), batch_size=16, num_workers=2, persistent_workers=True)
    iter(loader)
    return loader


class Losses(ms.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_step_end(self, run_context):
        out = run_context.original_args().net_outputs
        self.seen.append(float(out[0] if isinstance(out, (list, tuple)) else out))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("network", ["mindspore", "facade"])
def test_torch_dataset_feeds_model_train(source, network):
    if network == "mindspore":
        net = msnn.Dense(4, 2, weight_init=ms.Tensor(W.copy()), has_bias=False)
        params = net.trainable_params()
    else:
        net = mine.nn.Linear(4, 2, bias=False)
        net.load_state_dict({"weight": mine.from_numpy(W.copy())})
        params = net.trainable_params()
    seen = Losses()
    model = ms.Model(net, msnn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), msnn.SGD(params, 0.1, momentum=0.9))
    model.train(2, SOURCES[source](), callbacks=[seen], dataset_sink_mode=False)
    want, weight = reference()
    assert np.allclose(seen.seen, want, atol=1e-5)
    assert np.allclose(params[0].asnumpy(), weight, atol=1e-5)


def test_forking_workers_in_a_mindspore_thread_raises():
    """A fork in such a thread sometimes hangs in MindSpore."""
    pipe = ds.GeneratorDataset(mine.utils.data.DataLoader(Rows(), batch_size=16, num_workers=2), ["x", "y"])
    with pytest.raises(RuntimeError, match="persistent_workers=True"):
        list(pipe.create_tuple_iterator(num_epochs=1))
