"""`init_env(cfg)`: sets up the environment of MindSpore's training scripts, for MindSpore and the
facade."""
import warnings

from mindtorch.backend.mindspore.runtime import ms

TARGETS = ("None", "Ascend", "GPU", "CPU")
MODES = {"graph": ms.GRAPH_MODE, "pynative": ms.PYNATIVE_MODE}


def init_env(cfg):
    """Sets seed, device, mode and process group from `cfg`, and fills in the missing values.

        cfg  any object with the attributes `seed`, `device_target` ('None' lets MindSpore choose,
             'Ascend', 'GPU', 'CPU'), `context_mode` ('graph' or 'pynative'), `device_num`, and
             optionally `device_id` and `all_reduce_fusion_config`.

    Afterwards cfg.device_target is the device in use, and cfg.device_num and cfg.rank_id are those
    of the group. ValueError for other values, or if the size of the group differs from
    cfg.device_num.
    """
    target = str(cfg.device_target)
    if target not in TARGETS:
        raise ValueError(f"Invalid device_target: {cfg.device_target}, should be in {list(TARGETS)}")
    if cfg.context_mode not in MODES:
        raise ValueError(f"Invalid context_mode: {cfg.context_mode}, should be in {list(MODES)}")
    import mindtorch.torch as torch
    ms.set_seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    if target != "None":
        ms.set_context(device_target=target)
    ms.set_context(mode=MODES[cfg.context_mode])
    cfg.device_target = ms.get_context("device_target")
    if cfg.device_target == "CPU":
        if cfg.device_num > 1:
            warnings.warn(f"device_num={cfg.device_num} is ignored: the device is a CPU, and init_env sets up no group "
                          "there; use torch.distributed.init_process_group", stacklevel=2)
        cfg.device_id, cfg.device_num = 0, 1
    elif isinstance(getattr(cfg, "device_id", None), int):
        ms.set_device(cfg.device_target, cfg.device_id)
    cfg.rank_id = 0
    if cfg.device_num > 1:
        from mindspore.communication import get_group_size, get_rank, init
        init()
        if get_group_size() != cfg.device_num:
            raise ValueError(f"the setting device_num: {cfg.device_num} not equal to the real group_size: {get_group_size()}")
        cfg.rank_id = get_rank()
        ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True)
        if hasattr(cfg, "all_reduce_fusion_config"):
            ms.set_auto_parallel_context(all_reduce_fusion_config=cfg.all_reduce_fusion_config)
    else:
        cfg.device_num = 1
