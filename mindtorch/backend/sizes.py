"""Arithmetic on sizes that ops and the kernels of every device share."""


def out_size(size, kernel, stride, padding, dilation):
    """Spatial size of a convolution's result; `padding` holds (before, after) pairs."""
    return tuple((n + lo + hi - d * (k - 1) - 1) // s + 1
                 for n, k, s, (lo, hi), d in zip(size, kernel, stride, padding, dilation))
