"""Marks the optimizer steps of a script in the log, with the host time that each took."""
import ctypes
import json
import time


def mark():
    """Logs an entry after each optimizer step of this process, under mindtorch or torch_npu.

    `{"step": 3, "wall": ms, "main": ms, "all": ms}`: the wall time since the last entry, the CPU
    time of the main thread and of all threads. The device is synchronized before an entry, so that
    it follows the launches of its step; this time does not count.
    """
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook
    log = ctypes.CDLL("libascendcl.so").standin_log
    clocks = {"wall": time.perf_counter, "main": time.thread_time, "all": time.process_time}
    number, start = 0, {}

    def restart():
        start.update({name: clock() for name, clock in clocks.items()})

    def stepped(optimizer, args, kwargs):
        nonlocal number
        entry = {name: round((clock() - start[name]) * 1e3, 3) for name, clock in clocks.items()}
        torch.npu.synchronize()
        log(json.dumps({"step": number, **entry}).encode())
        number += 1
        restart()
    register_optimizer_step_post_hook(stepped)
    restart()
