"""Convolutions of one to three dimensions on Ascend, and image windows as columns: one aclnn launch
forward, one for all requested gradients.

Where a gradient's kernel uses only the shape of a tensor, it gets uninitialized memory.
"""
from mindtorch.backend.mindspore.kernels._call import dtype_of, G, op, P, shape_of, UnsupportedByKernel
from mindtorch.backend.mindspore.kernels.ascend import ascend, copy, CUBE, empty, needed_only, ones_where
from mindtorch.backend.mindspore.kernels.shapes import narrowed


# ------------------------------------------------------------------ convolutions
def _pads(padding, dims):
    """Returns the padding common to both sides, and the excess of one side as (before, after), or
    None if there is none.

    padding="same" with an even kernel size has an excess.
    """
    if dims not in (1, 2, 3):
        raise UnsupportedByKernel
    pads = tuple([min(pair) for pair in padding])
    more = tuple([(a - p, b - p) for (a, b), p in zip(padding, pads)])
    return pads, more if any([a or b for a, b in more]) else None


def _grown(size, more):
    return tuple(size) if more is None else tuple([n + a + b for n, (a, b) in zip(size, more)])


def _padded_one_side(x, more):
    """Pads an image by the excess of one side, in a separate launch: the kernel pads both sides
    equally."""
    return x if more is None or x is None else op(G.ConstantPadND)(x, tuple([n for pair in reversed(more) for n in pair]), 0)


def _core(g, size, more):
    """Removes the excess of one side from an image's gradient."""
    if more is None or g is None:
        return g
    for axis, (n, (before, _)) in enumerate(zip(size, more), 2):
        g = narrowed(g, axis, before, before + n)
    return copy(g)


def _out_size(size, kernel, stride, pads, dilation):
    return tuple([(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(size, kernel, stride, pads, dilation)])


def _fits(out, size, kernel, stride, pads, dilation):
    """Raises `UnsupportedByKernel` if the gradient is not that of a complete convolution (an output padding of
    more than the stride)."""
    if tuple(out) != _out_size(size, kernel, stride, pads, dilation):
        raise UnsupportedByKernel


@ascend("convolution", only=CUBE)
def _convolution(x, w, b, *, stride, padding, dilation, groups, out):
    size, kernel_size = shape_of(x)[2:], shape_of(w)[2:]
    pads, more = _pads(padding, len(kernel_size))
    if out is not None and tuple(out) != _out_size(_grown(size, more), kernel_size, stride, pads, dilation):
        raise UnsupportedByKernel
    return op(G.Convolution)(_padded_one_side(x, more), w, b, tuple(stride), pads, tuple(dilation), False, (0,) * len(pads), groups)


@ascend("convolution_transposed", only=CUBE)
def _convolution_transposed(g, w, b, *, size, stride, padding, dilation, groups):
    gs, ws = shape_of(g), shape_of(w)
    pads, more = _pads(padding, len(ws) - 2)
    if b is not None:
        if more is not None:
            raise UnsupportedByKernel
        # The user's transposed convolution: its output padding is the result's size minus the
        # minimum size.
        least = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in zip(gs[2:], ws[2:], stride, pads, dilation)]
        return op(G.Convolution)(g, w, b, tuple(stride), pads, tuple(dilation), True, tuple([n - m for n, m in zip(size, least)]), groups)
    padded_size = _grown(size, more)
    _fits(gs[2:], padded_size, ws[2:], stride, pads, dilation)
    x = empty((gs[0], ws[1] * groups, *padded_size), dtype_of(g))
    r = op(G.ConvolutionGrad)(g, x, w, None, tuple(stride), pads, tuple(dilation), False, (0,) * len(pads), groups, (1, 0, 0))[0]
    return _core(r, size, more)


@ascend("convolution_weight", only=CUBE)
def _convolution_weight(g, x, *, kernel, stride, padding, dilation, groups):
    pads, more = _pads(padding, len(kernel))
    x = _padded_one_side(x, more)
    _fits(shape_of(g)[2:], shape_of(x)[2:], kernel, stride, pads, dilation)
    w = empty((shape_of(g)[1], shape_of(x)[1] // groups, *kernel), dtype_of(g))
    return op(G.ConvolutionGrad)(g, x, w, None, tuple(stride), pads, tuple(dilation), False, (0,) * len(pads), groups, (0, 1, 0))[1]


@ascend("convolution_backward", only=CUBE)
def _convolution_backward(g, x, w, *, transposed, sizes, kernel, stride, padding, dilation, groups, needs):
    pads, more = _pads(padding, len(kernel) - 2)
    extra, padded_size = (0,) * len(pads), _grown(sizes[2:], more)
    if transposed:
        if more is not None:
            raise UnsupportedByKernel
        least = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in zip(sizes[2:], kernel[2:], stride, pads, dilation)]
        extra = tuple([n - m for n, m in zip(shape_of(g)[2:], least)])
    else:
        _fits(shape_of(g)[2:], padded_size, kernel[2:], stride, pads, dilation)
    x, w = empty((*sizes[:2], *padded_size), dtype_of(g)) if x is None else _padded_one_side(x, more), empty(kernel, dtype_of(g)) if w is None else w
    bias = empty((shape_of(g)[1],), dtype_of(g)) if needs[2] else None
    gx, gw, gb = op(G.ConvolutionGrad)(g, x, w, bias, tuple(stride), pads, tuple(dilation), transposed, extra, groups, ones_where(needs))
    return needed_only((_core(gx, sizes[2:], more) if needs[0] else None, gw, gb), needs)


# ------------------------------------------------------------------ windows of images
@ascend("im2col", only=CUBE)
def _im2col(x, *, kernel, dilation, padding, stride):
    return op(G.Im2ColExt)(x, tuple(kernel), tuple(dilation), tuple(padding), tuple(stride))


@ascend("col2im", only=CUBE)
def _col2im(cols, *, size, kernel, dilation, padding, stride):
    return op(G.Col2ImExt)(cols, tuple(size), tuple(kernel), tuple(dilation), tuple(padding), tuple(stride))


# ------------------------------------------------------------------ unbatched samples
ascend("unsqueeze_batch", lambda a: op(P.Reshape)(copy(a), (1, *shape_of(a))))
ascend("squeeze_batch", lambda a: op(P.Reshape)(copy(a), shape_of(a)[1:]))
