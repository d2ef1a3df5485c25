"""Data sinking (`dataset_sink_mode=True`, `ms.data_sink`) of networks that use torch-style code.

MindSpore's device queue ends in an operator of its graph, and one call runs the steps of an epoch.
A network that is not a MindSpore graph would run only one step per epoch there. Such a network is
therefore fed from the host, as often as the queue would feed it. All visible behaviour of sinking
stays the same: when callbacks are called, and what counts as a step.
"""
import functools
import sys
from typing import Any

from mindtorch.backend.mindspore import graph_mode_step
from mindtorch.backend.mindspore.patches import put, put_everywhere
from mindtorch.backend.mindspore.runtime import ms

from mindspore.train import dataset_helper as _helper, model as _model  # noqa: E402


class _Rows:
    """Endless iterator over the rows of a dataset."""

    def __init__(self, dataset, epochs):
        self.dataset, self.epochs, self.left = dataset, epochs, 0
        self.iterator: Any = None

    def __next__(self):
        while True:
            if not self.left:
                self.iterator, self.left = self.dataset.create_tuple_iterator(num_epochs=self.epochs), self.epochs
            try:
                return next(self.iterator)
            except StopIteration:
                self.left -= 1


class _Iteration:
    """The `iter` attribute of a DatasetHelper: `calls` calls without arguments, of `size` steps
    each."""

    def __init__(self, dataset, calls, size):
        self.dataset, self.sink_count, self.sink_size = dataset, calls, size
        self.dataset_types, self.dataset_shapes = _helper._get_types_and_shapes(dataset)

    def __iter__(self):
        return iter([()] * self.sink_count)

    def types_shapes(self):
        return self.dataset_types, self.dataset_shapes

    def get_sink_size(self):
        return self.sink_size

    def stop_send(self):
        """Does nothing: no data is sent ahead."""

    release = continue_send = stop_send


class _Helper(_helper.DatasetHelper):
    """DatasetHelper for data that is fed from the host."""

    def __init__(self, dataset, network, size, epochs):
        in_graph = ms.get_context("mode") == ms.GRAPH_MODE
        steps_in_all = dataset.get_dataset_size() if size == -1 else size
        size = getattr(dataset, "__loop_size__", steps_in_all) if in_graph else 1
        if size <= steps_in_all and steps_in_all % size:
            raise ValueError(f"Dataset size {steps_in_all} and 'sink_size' {size} are not matched, dataset size should be divisible by 'sink_size'.")
        self.iter = _Iteration(dataset, max(1, steps_in_all // size), size)
        self.network = _Fed(network, _Rows(dataset, epochs), size)


class _Fed(ms.nn.Cell):
    """A network that fetches its own arguments."""

    def __init__(self, network, rows, size):
        super().__init__(auto_prefix=False, flags=network.get_flags())
        self.network, self.rows, self.size = network, rows, size
        self._get_attr_from_cell(network)

    def construct(self):
        """Runs `size` steps and returns the result of the last one."""
        out = None
        for _ in range(self.size):
            out = self.network(*next(self.rows))
        return out

    def __call__(self):
        return self.construct()  # each step is compiled separately


_preprocess, _sink = _model.Model._exec_preprocess, sys.modules["mindspore.train.data_sink"].data_sink


@functools.wraps(_preprocess)
def _fed_or_sunk(self, is_train, dataset, dataset_sink_mode, sink_size=-1, epoch_num=1, dataset_helper=None):
    network = self._train_network if is_train else self._eval_network
    if not dataset_sink_mode or not (isinstance(dataset_helper, _Helper) or dataset_helper is None and graph_mode_step.uses_facade(network)):
        return _preprocess(self, is_train, dataset, dataset_sink_mode, sink_size, epoch_num, dataset_helper)
    if dataset_helper is None:
        dataset_helper = _Helper(dataset, network, sink_size, epoch_num)
        if not is_train:
            dataset_helper.iter.sink_count, dataset_helper.iter.sink_size, dataset_helper.network.size = dataset.get_dataset_size(), 1, 1
    network = dataset_helper.network
    network.set_train(is_train)
    network.phase = "train" if is_train else "eval"
    self._backbone_is_train = is_train
    return dataset_helper, network


@functools.wraps(_sink)
def _data_sink(fn, dataset, sink_size=1, jit_config=None, input_signature=None):
    if not graph_mode_step.uses_facade(fn):
        return _sink(fn, dataset, sink_size, jit_config, input_signature)
    if not isinstance(sink_size, int) or sink_size <= 0:
        raise ValueError(f"The 'sink_size' must be positive, but got sink_size {sink_size}.")
    rows: Any = _Rows(dataset, 1)
    step = fn if jit_config is None else ms.jit(fn)

    @functools.wraps(fn)
    def sink_process(*args, **kwargs):
        out = None
        for _ in range(sink_size):
            out = step(*next(rows))
        return out
    return sink_process


put("mindspore.train.model:Model._exec_preprocess", _fed_or_sunk)
put_everywhere("mindspore.train.data_sink:data_sink", _data_sink)
