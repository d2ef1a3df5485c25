"""torch.onnx.export: traces the model and writes the trace with the `onnx` package."""
import contextlib
import os
import warnings

import numpy as np

from mindtorch.backend.export.lowering import OPSETS, close, to_model
from mindtorch.core.tensor.tensor import adopt, is_tensor
from mindtorch.torch import _graph
from mindtorch.torch.jit import example_of
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.onnx import errors

DEFAULT_OPSET = 17
_running = [False]


def is_in_onnx_export():
    """True while an export is running (models may check this)."""
    return _running[0]


class ONNXProgram:
    """An exported model.

    `model_proto` is the onnx.ModelProto. Calling the object runs the model with onnxruntime.
    """

    def __init__(self, model_proto, graph):
        self.model_proto, self.graph = model_proto, graph
        self._session = None

    def save(self, destination, *, include_initializers=True, keep_initializers_as_inputs=False, external_data=None):
        """Writes the model to a file; with `external_data`, the weights go to a second file next to
        it."""
        if not include_initializers or keep_initializers_as_inputs:
            raise NotImplementedError("ONNXProgram.save without initializers, or with initializers as inputs, is not supported")
        import onnx
        kwargs = {} if not external_data else {"save_as_external_data": True, "location": os.path.basename(destination) + ".data"}
        onnx.save_model(self.model_proto, destination, **kwargs)

    def __call__(self, *args, **kwargs):
        import onnxruntime
        from mindtorch.torch import from_numpy
        if self._session is None:
            self._session = onnxruntime.InferenceSession(self.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
        flat = _graph.tensors_in((args, kwargs))
        feed = {i.name: np.ascontiguousarray(t.detach().numpy()) for i, t in zip(self._session.get_inputs(), flat)}
        return tuple(from_numpy(a) for a in self._session.run(None, feed))

    def __repr__(self):
        return f"ONNXProgram({len(self.model_proto.graph.node)} nodes, opset {self.model_proto.opset_import[0].version})"


def _axes(dynamic_axes, dynamic_shapes, named, input_names):
    """Normalizes `dynamic_axes` and `dynamic_shapes` to {input index: {axis: name}}."""
    known = {n: i for i, n in enumerate(input_names)}
    for i, (n, _) in enumerate(named):
        known.setdefault(n, i)
    out = {}
    for key, axes in (dynamic_axes or {}).items():
        if key in known:
            i = known[key]
            items = axes.items() if isinstance(axes, dict) else ((a, f"{key}_dim_{a}") for a in axes)
            out[i] = {_axis(a, named[i][1]): str(n) for a, n in items}
    if dynamic_shapes:
        given = dynamic_shapes.items() if isinstance(dynamic_shapes, dict) else enumerate(dynamic_shapes)
        for key, axes in given:
            if axes is None:
                continue
            i = key if isinstance(key, int) else known[key]
            items = axes.items() if isinstance(axes, dict) else enumerate(axes)
            found = {}
            for a, d in items:
                if d is None or isinstance(d, int) or getattr(d, "name", "") == "STATIC":
                    continue
                hint = getattr(d, "__name__", None) or (d if isinstance(d, str) else f"{named[i][0]}_dim_{a}")
                found[_axis(a, named[i][1])] = hint
            out[i] = {**out.get(i, {}), **found}
    return {i: axes for i, axes in out.items() if axes}


def _axis(a, t):
    return a + t.ndim if a < 0 else a


def export(model, args=(), f=None, *, kwargs=None, verbose=None, input_names=None, output_names=None, opset_version=None, dynamo=True,
           external_data=True, dynamic_shapes=None, custom_translation_table=None, report=False, optimize=True, verify=False, profile=False,
           dump_exported_program=False, artifacts_dir=".", export_params=True, keep_initializers_as_inputs=False,
           dynamic_axes=None, training=None, operator_export_type=None, do_constant_folding=True, custom_opsets=None,
           export_modules_as_functions=False, autograd_inlining=True):
    """Writes `model` (a Module, a traced module or a function) as ONNX to the file `f` (a path, a
    file object, or None).

    Args:
        args, kwargs: example inputs; `args` is a tensor, or a tuple of the arguments of
            forward.
        dynamic_axes: {input name: {axis: name}} of the sizes that stay dynamic.
            `dynamic_shapes` is the same in the format of torch.export.
        opset_version: 13 to 21 (default 17).
        verify: also run the model with onnxruntime and compare the results.

    Returns an ONNXProgram. Raises ImportError if the package onnx is missing, and
    NotImplementedError with the name of an op that has no lowering.
    """
    opset = DEFAULT_OPSET if opset_version is None else int(opset_version)
    if opset not in OPSETS:
        raise ValueError(f"torch.onnx.export: opset_version {opset} is not supported, only {OPSETS[0]} to {OPSETS[-1]}")
    for name, value in (("custom_translation_table", custom_translation_table), ("custom_opsets", custom_opsets),
                        ("keep_initializers_as_inputs", keep_initializers_as_inputs), ("report", report), ("profile", profile),
                        ("dump_exported_program", dump_exported_program), ("export_modules_as_functions", export_modules_as_functions)):
        if value:
            raise NotImplementedError(f"torch.onnx.export: {name} is not supported")
    if not export_params:
        raise NotImplementedError("torch.onnx.export: export_params=False is not supported")
    if not (isinstance(model, Module) or callable(model)):
        raise TypeError(f"torch.onnx.export: model must be a Module or a function, not {type(model).__name__}")
    args = (args,) if is_tensor(args) or not isinstance(args, (tuple, list)) else tuple(args)
    if args and isinstance(args[-1], dict) and kwargs is None:
        # older calling convention: a trailing dict in `args` holds the keyword arguments
        args, kwargs = args[:-1], args[-1]
    if not args and not kwargs:
        args = example_of(model) or ()
    args = tuple(a if is_tensor(a) or not hasattr(a, "asnumpy") else adopt(a.copy()) for a in args)
    named = _graph._named(model, args, kwargs or {})
    names = list(input_names or [])
    dynamic = _axes(dynamic_axes, dynamic_shapes, named, names)
    training = getattr(training, "name", training)
    if training not in (None, "EVAL", "PRESERVE"):
        raise NotImplementedError("torch.onnx.export: training=TRAINING is not supported")
    mode = contextlib.nullcontext() if training == "PRESERVE" else _graph.evaluating(model)
    _running[0] = True
    try:
        with mode:
            graph = _graph.capture(model, args, kwargs, dynamic=dynamic, escaped=_warn)
    finally:
        _running[0] = False
    if len(names) > len(graph.inputs):
        raise ValueError(f"torch.onnx.export: {len(names)} input_names for {len(graph.inputs)} inputs")
    for v, name in zip(graph.inputs, names):
        v.name = name
    program = ONNXProgram(to_model(graph, opset, output_names or ()), graph)
    if verify:
        _verify(program, [t.cpu() for _, t in named])
    if f is not None:
        if hasattr(f, "write"):
            f.write(program.model_proto.SerializeToString())
        else:
            big = program.model_proto.ByteSize() >= 2 ** 31 - 2 ** 16
            program.save(os.fspath(f), external_data=bool(big))
    if verbose:
        print(program)
    return program


def _warn(name):
    from mindtorch.torch.jit import TracerWarning
    warnings.warn(f"a traced value was converted to a Python scalar ({name}): the exported model treats it as a constant", TracerWarning,
                  stacklevel=2)


def _verify(program, inputs):
    got = program(*inputs)
    for a, v in zip(got, program.graph.outputs):
        try:
            close(a.numpy(), np.asarray(v.array), "the exported model")
        except AssertionError as e:
            raise errors.OnnxExporterError(f"verification with onnxruntime failed: {e}") from None
