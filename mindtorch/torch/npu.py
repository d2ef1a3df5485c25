"""torch.npu: the accelerator under its own name; see torch.cuda for what each function answers."""
from mindtorch.torch.cuda import (Event, Stream, current_device, current_stream, device, device_count, empty_cache,  # noqa: F401
                                  get_device_name, get_device_properties, init, is_available, is_bf16_supported,
                                  is_initialized, manual_seed, manual_seed_all, max_memory_allocated, memory_allocated,
                                  memory_reserved, reset_peak_memory_stats, set_device, stream, synchronize)
