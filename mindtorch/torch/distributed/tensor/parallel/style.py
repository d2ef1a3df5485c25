"""How a submodule is split over a 1-D mesh, and the placements of its inputs and outputs."""
import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch._refusing import refuse
from mindtorch.torch.distributed.tensor._api import DTensor, distribute_module, distribute_tensor
from mindtorch.torch.distributed.tensor.placement_types import Replicate, Shard

__all__ = ["ParallelStyle", "RowwiseParallel", "SequenceParallel", "ColwiseParallel", "PrepareModuleInput",
           "PrepareModuleInputOutput", "PrepareModuleOutput"]


class ParallelStyle:
    """Base class of the styles. `parallelize_module` sets `src_data_rank`."""

    src_data_rank = 0

    def _apply(self, module, device_mesh):
        raise NotImplementedError(f"{type(self).__name__}._apply")


def _laid(value, mesh, layout, desired):
    """Returns a DTensor with the `desired` placement. A plain tensor is a local part with the
    placement `layout`."""
    if layout is None:
        return value
    if not is_tensor(value):
        raise ValueError(f"a layout was given for a value of type {type(value).__name__}; expected a tensor")
    if not isinstance(value, DTensor):
        value = DTensor.from_local(value, mesh, (layout,))
    return value if desired is None else value.redistribute(placements=(desired,))


class _Split(ParallelStyle):
    """Splits the weight of a Linear or Embedding."""

    def __init__(self, input_layout, output_layout, use_local_output):
        self.input_layouts, self.output_layouts, self.use_local_output = (input_layout,), (output_layout,), use_local_output

    def _apply(self, module, device_mesh):
        if isinstance(module, torch.nn.Linear):
            split = self._linear
        elif isinstance(module, torch.nn.Embedding):
            split = self._embedding
        else:
            raise NotImplementedError(f"{type(self).__name__} currently only support nn.Linear and nn.Embedding!")
        desired = self._desired(module)

        def partition(name, m, mesh):
            for key, p in m._parameters.items():
                if p is not None:
                    m.register_parameter(key, distribute_tensor(p, mesh, [split(key)], src_data_rank=self.src_data_rank))

        def before(m, inputs, mesh):
            return (_laid(inputs[0], mesh, self.input_layouts[0], desired), *inputs[1:])

        def after(m, outputs, mesh):
            outputs = outputs.redistribute(placements=self.output_layouts)
            return outputs.to_local() if self.use_local_output else outputs
        return distribute_module(module, device_mesh, partition, before, after)


class ColwiseParallel(_Split):
    """Every rank computes some of the outputs of a Linear (or some columns of an Embedding)."""

    def __init__(self, *, input_layouts=None, output_layouts=None, use_local_output=True):
        super().__init__(input_layouts or Replicate(), output_layouts or Shard(-1), use_local_output)

    def _desired(self, module):
        return Replicate()

    def _linear(self, key):
        return Shard(0)

    def _embedding(self, key):
        return Shard(1)


class RowwiseParallel(_Split):
    """Every rank has the weights of some inputs of a Linear (or some rows of an Embedding). The
    outputs are summed over the ranks."""

    def __init__(self, *, input_layouts=None, output_layouts=None, use_local_output=True):
        super().__init__(input_layouts or Shard(-1), output_layouts or Replicate(), use_local_output)

    def _desired(self, module):
        return Shard(-1) if isinstance(module, torch.nn.Linear) else Replicate()

    def _linear(self, key):
        return Shard(1) if key == "weight" else Replicate()

    def _embedding(self, key):
        return Shard(0)


class SequenceParallel(ParallelStyle):
    """A module with replicated parameters (LayerNorm, Dropout) whose inputs and outputs are split
    along the sequence.

    The module runs on the gathered sequence: the results are correct, but no memory is saved.
    """

    def __init__(self, *, sequence_dim=1, use_local_output=False):
        self.sequence_sharding, self.use_local_output = (Shard(sequence_dim),), use_local_output

    def _apply(self, module, device_mesh):
        layout = self.sequence_sharding[0]

        def before(m, inputs, mesh):
            return (_laid(inputs[0], mesh, layout, layout), *inputs[1:])

        def after(m, outputs, mesh):
            outputs = outputs.redistribute(placements=(layout,))
            return outputs.to_local() if self.use_local_output else outputs
        return distribute_module(module, device_mesh, None, before, after)


def _several(value):
    return value if isinstance(value, tuple) else (value,)


class PrepareModuleInput(ParallelStyle):
    """Converts a module's inputs to DTensors with the desired placements."""

    def __init__(self, *, input_layouts=None, desired_input_layouts=None, input_kwarg_layouts=None, desired_input_kwarg_layouts=None,
                 use_local_output=False):
        self.input_layouts = None if input_layouts is None else _several(input_layouts)
        self.desired_input_layouts = None if desired_input_layouts is None else _several(desired_input_layouts)
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}
        self.use_local_output = use_local_output
        if self.input_layouts is not None and (self.desired_input_layouts is None or
                                               len(self.input_layouts) != len(self.desired_input_layouts)):
            raise AssertionError("input_layouts and desired_input_layouts should have same length!")

    def _one(self, value, mesh, layout, desired):
        value = _laid(value, mesh, layout, desired)
        return value.to_local() if self.use_local_output and isinstance(value, DTensor) else value

    def _apply(self, module, device_mesh):
        def before(m, args, kwargs):
            if self.input_layouts is not None:
                if len(args) != len(self.input_layouts):
                    raise ValueError("module inputs and input_layouts should have same length!")
                args = tuple(self._one(*a) for a in zip(args, [device_mesh] * len(args), self.input_layouts, self.desired_input_layouts))
            kwargs = {k: self._one(v, device_mesh, self.input_kwarg_layouts.get(k), self.desired_input_kwarg_layouts.get(k))
                      for k, v in kwargs.items()}
            return args, kwargs
        module.register_forward_pre_hook(before, with_kwargs=True)
        return module


class PrepareModuleOutput(ParallelStyle):
    """Converts a module's outputs to the desired placements."""

    def __init__(self, *, output_layouts, desired_output_layouts, use_local_output=True):
        self.output_layouts, self.desired_output_layouts = _several(output_layouts), _several(desired_output_layouts)
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise AssertionError("output_layouts and desired_output_layouts should have same length!")

    def _apply(self, module, device_mesh):
        def after(m, inputs, outputs):
            found = _several(outputs)
            if len(found) != len(self.output_layouts):
                raise ValueError("module outputs and output_layouts should have same length!")
            made = []
            for value, layout, desired in zip(found, self.output_layouts, self.desired_output_layouts):
                value = _laid(value, device_mesh, layout, desired)
                made.append(value.to_local() if self.use_local_output and isinstance(value, DTensor) else value)
            return tuple(made) if isinstance(outputs, tuple) else made[0]
        module.register_forward_hook(after)
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """Combines PrepareModuleInput and PrepareModuleOutput."""

    def __init__(self, *, input_layouts=None, desired_input_layouts=None, input_kwarg_layouts=None, desired_input_kwarg_layouts=None,
                 use_local_input=False, output_layouts, desired_output_layouts, use_local_output=True):
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts, desired_input_layouts=desired_input_layouts, input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts, use_local_output=use_local_input)
        self.prepare_module_output = PrepareModuleOutput(output_layouts=output_layouts, desired_output_layouts=desired_output_layouts,
                                                         use_local_output=use_local_output)

    def _apply(self, module, device_mesh):
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)


refuse(globals(), "compute the loss on redistributed outputs (output_layouts=Replicate())", "", "LossParallel")
