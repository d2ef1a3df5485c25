"""torch.utils.tensorboard: needs a writer of TensorBoard's files (tensorboardX), if one is installed."""
try:
    from tensorboardX import FileWriter, SummaryWriter  # noqa: F401
except ImportError:
    from mindtorch.torch._refusing import refuse

    refuse(globals(), "install tensorboardX, which writes TensorBoard's files", "", "SummaryWriter FileWriter")
