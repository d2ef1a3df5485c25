"""What summaries are made of, as NumPy arrays: values, images in the order that a picture has, pages of images."""
import math

import numpy as np

from mindtorch.core.tensor import taken

#: images next to each other in a page of images
COLUMNS = 8


def make_np(x):
    """A NumPy array of an array, a number or a tensor on any device (bfloat16 as float32); NotImplementedError for anything else."""
    if isinstance(x, np.ndarray):
        return x
    if np.isscalar(x):
        return np.array([x])
    if taken(x):
        x = x.detach().cpu()
        return (x.float() if x.dtype.itemsize == 2 and x.is_floating_point() and str(x.dtype).endswith("bfloat16") else x).numpy()
    raise NotImplementedError(f"Got {type(x)}, but numpy array or torch tensor are expected.")


def grid(images, columns=COLUMNS):
    """One picture (CHW) of many (NCHW, one or three channels), row by row; what is left of the last row is zero. Float images stay float."""
    if not (isinstance(images, np.ndarray) and images.ndim == 4 and images.shape[1] in (1, 3)):
        raise AssertionError(f"a page is made of images in NCHW with 1 or 3 channels, not of {getattr(images, 'shape', type(images))}")
    if images.shape[1] == 1:
        images = np.repeat(images, 3, axis=1)
    n, c, h, w = images.shape
    columns = min(n, columns)
    page = np.zeros((c, h * math.ceil(n / columns), w * columns), images.dtype)
    for i, image in enumerate(images):
        y, x = divmod(i, columns)
        page[:, y * h:(y + 1) * h, x * w:(x + 1) * w] = image
    return page


def hwc(image, order):
    """The picture (HWC, at least three channels where it had one) of an array whose axes are `order`: "CHW", "HW", "NHWC", ..."""
    order = order.upper()
    if len(set(order)) != len(order):
        raise AssertionError(f"an axis is named twice in dataformats {order!r}")
    if image.ndim != len(order):
        raise AssertionError(f"dataformats {order!r} has {len(order)} axes, and the image has the shape {image.shape}")
    if len(order) == 4:
        image = np.transpose(grid(np.transpose(image, [order.index(a) for a in "NCHW"])), (1, 2, 0))
    elif len(order) == 3:
        image = np.transpose(image, [order.index(a) for a in "HWC"])
    else:
        image = np.transpose(image, [order.index(a) for a in "HW"])[..., None]
    return np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image


def bytes_of(image):
    """Values from 0 to 255 (uint8) of a picture: floats from 0 to 1 are scaled, uint8 stays."""
    scale = 1 if image.dtype == np.uint8 else 255
    return (image.astype(np.float32) * scale).clip(0, 255).astype(np.uint8)


def figure_to_image(figures, close=True):
    """RGB picture(s) of a matplotlib figure (CHW), or of a list of such (NCHW), which are closed afterwards unless `close` is False."""
    from matplotlib import pyplot
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    def drawn(figure):
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        if close:
            pyplot.close(figure)
        return np.moveaxis(np.asarray(canvas.buffer_rgba())[:, :, :3], 2, 0).copy()
    return np.stack([drawn(f) for f in figures]) if isinstance(figures, list) else drawn(figures)
