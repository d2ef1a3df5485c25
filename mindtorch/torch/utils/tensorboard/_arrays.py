"""Conversion of summary data to NumPy arrays: values, images in HWC order, grids of images."""
import math

import numpy as np

from mindtorch.core.tensor.tensor import is_tensor

#: images per row of a grid
COLUMNS = 8


def make_np(x):
    """Converts an array, a scalar or a tensor on any device to a NumPy array (bfloat16 becomes
    float32).

    Raises NotImplementedError for other types.
    """
    if isinstance(x, np.ndarray):
        return x
    if np.isscalar(x):
        return np.array([x])
    if is_tensor(x):
        x = x.detach().cpu()
        return (x.float() if x.dtype.itemsize == 2 and x.is_floating_point() and str(x.dtype).endswith("bfloat16") else x).numpy()
    raise NotImplementedError(f"Got {type(x)}, but numpy array or torch tensor are expected.")


def grid(images, columns=COLUMNS):
    """Arranges images (NCHW, one or three channels) in one image (CHW), row by row.

    The unused part of the last row is zero. Float images remain float.
    """
    if not (isinstance(images, np.ndarray) and images.ndim == 4 and images.shape[1] in (1, 3)):
        raise AssertionError(f"expected images in NCHW with 1 or 3 channels, got {getattr(images, 'shape', type(images))}")
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
    """Converts an image whose axes are `order` ("CHW", "HW", "NHWC", ...) to HWC; a single channel
    is repeated three times."""
    order = order.upper()
    if len(set(order)) != len(order):
        raise AssertionError(f"duplicate axis in dataformats {order!r}")
    if image.ndim != len(order):
        raise AssertionError(f"dataformats {order!r} has {len(order)} axes, but the image has shape {image.shape}")
    if len(order) == 4:
        image = np.transpose(grid(np.transpose(image, [order.index(a) for a in "NCHW"])), (1, 2, 0))
    elif len(order) == 3:
        image = np.transpose(image, [order.index(a) for a in "HWC"])
    else:
        image = np.transpose(image, [order.index(a) for a in "HW"])[..., None]
    return np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image


def bytes_of(image):
    """Converts an image to uint8: floats from 0 to 1 are scaled to 0 to 255, uint8 is unchanged."""
    scale = 1 if image.dtype == np.uint8 else 255
    return (image.astype(np.float32) * scale).clip(0, 255).astype(np.uint8)


def figure_to_image(figures, close=True):
    """Renders a matplotlib figure to an RGB image (CHW), or a list of figures to NCHW.

    The figures are closed afterwards unless `close` is False.
    """
    from matplotlib import pyplot
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    def drawn(figure):
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        if close:
            pyplot.close(figure)
        return np.moveaxis(np.asarray(canvas.buffer_rgba())[:, :, :3], 2, 0).copy()
    return np.stack([drawn(f) for f in figures]) if isinstance(figures, list) else drawn(figures)
