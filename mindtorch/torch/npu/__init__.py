"""torch.npu: the accelerator API under the name npu; the functions are those of torch.cuda."""
from mindtorch.backend.cpu.host import OutOfMemoryError  # noqa: F401
from mindtorch.torch.cuda import (Event, Stream, StreamContext, can_device_access_peer, current_device, current_stream, default_stream, device,  # noqa: F401
                                  device_count, device_of, empty_cache, get_device_capability, get_device_name, get_device_properties,
                                  host_fallbacks, init, ipc_collect, is_available, is_bf16_supported, is_initialized, manual_seed, manual_seed_all,
                                  max_memory_allocated, max_memory_cached, max_memory_reserved, mem_get_info, memory_allocated, memory_cached,
                                  memory_reserved, memory_stats, memory_summary, reset_accumulated_memory_stats, reset_host_fallbacks,
                                  reset_max_memory_allocated, reset_max_memory_cached, reset_peak_memory_stats, set_device, set_stream, stream, synchronize)
from mindtorch.torch.cuda import (ExternalStream, get_per_process_memory_fraction, get_sync_debug_mode, memory, memory_snapshot,  # noqa: F401
                                  memory_stats_as_nested_dict, random, set_per_process_memory_fraction, set_sync_debug_mode, streams, utilization)
from mindtorch.torch.npu import amp  # noqa: F401
from mindtorch.torch.cuda.random import get_rng_state, get_rng_state_all, initial_seed, seed, seed_all, set_rng_state, set_rng_state_all  # noqa: F401
