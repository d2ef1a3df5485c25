"""Communication hooks of DistributedDataParallel: averaging at full or half precision."""
import mindtorch.torch as torch
import mindtorch.torch.distributed as dist

__all__ = ["allreduce_hook", "fp16_compress_hook", "bf16_compress_hook", "fp16_compress_wrapper", "bf16_compress_wrapper"]


def _group(process_group):
    return dist.group.WORLD if process_group is None else process_group


def _average(group, tensor):
    tensor.div_(group.size())
    return dist.all_reduce(tensor, group=group, async_op=True).get_future().then(lambda f: f.value()[0])


def allreduce_hook(process_group, bucket):
    """Averages the bucket, like DistributedDataParallel without a hook."""
    return _average(_group(process_group), bucket.buffer())


def _compressed(process_group, bucket, dtype):
    group, buffer = _group(process_group), bucket.buffer()
    # Divide before the reduction, so that the sum stays in the range of float16.
    small = buffer.to(dtype).div_(group.size())
    future = dist.all_reduce(small, group=group, async_op=True).get_future()
    return future.then(lambda f: buffer.copy_(f.value()[0]))


def fp16_compress_hook(process_group, bucket):
    """Averages the bucket in float16."""
    return _compressed(process_group, bucket, torch.float16)


def bf16_compress_hook(process_group, bucket):
    """Averages the bucket in bfloat16."""
    return _compressed(process_group, bucket, torch.bfloat16)


def _wrapper(hook, dtype):
    def compressing(state, bucket):
        original = bucket.buffer()
        bucket.set_buffer(original.to(dtype))

        def back(f):
            value = f.value()
            return original.copy_(value[0] if isinstance(value, (list, tuple)) else value)
        return hook(state, bucket).then(back)
    return compressing


def fp16_compress_wrapper(hook):
    """Wraps a hook: buckets are cast to float16 before it and back after it."""
    return _wrapper(hook, torch.float16)


def bf16_compress_wrapper(hook):
    """Wraps a hook: buckets are cast to bfloat16 before it and back after it."""
    return _wrapper(hook, torch.bfloat16)
