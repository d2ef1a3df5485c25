"""torch.utils.tensorboard: event files for TensorBoard, by the `tensorboard` package's own writer (`pip install tensorboard`).

Where only tensorboardX is installed, its SummaryWriter stands here; where neither is, using one says so.
"""
import importlib.util

if importlib.util.find_spec("tensorboard") is not None:
    from mindtorch.torch.utils.tensorboard.writer import FileWriter, SummaryWriter
elif importlib.util.find_spec("tensorboardX") is not None:
    from tensorboardX import FileWriter, SummaryWriter
else:
    from mindtorch.torch._refusing import refuse

    refuse(globals(), "install tensorboard, whose writer makes the event files", "", "SummaryWriter FileWriter")

__all__ = ["FileWriter", "SummaryWriter"]
