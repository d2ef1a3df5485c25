"""torch.utils.tensorboard: event files for TensorBoard, with the writer of the package
`tensorboard` (`pip install tensorboard`).

If only tensorboardX is installed, its SummaryWriter is used. If neither is installed, creating a
writer raises NotImplementedError.
"""
import importlib.util

if importlib.util.find_spec("tensorboard") is not None:
    from mindtorch.torch.utils.tensorboard.writer import FileWriter, SummaryWriter
elif importlib.util.find_spec("tensorboardX") is not None:
    from tensorboardX import FileWriter, SummaryWriter
else:
    from mindtorch.torch._refusing import refuse

    refuse(globals(), "install the package tensorboard, which writes the event files", "", "SummaryWriter FileWriter")

__all__ = ["FileWriter", "SummaryWriter"]
