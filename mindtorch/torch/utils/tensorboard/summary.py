"""Summaries: the records of values that TensorBoard's plugins read
(torch.utils.tensorboard.summary)."""
import io
import json
import logging
import math
import wave

import numpy as np
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.utils.tensorboard._arrays import bytes_of, grid, hwc, make_np

logger = logging.getLogger(__name__)

#: maximum number of thresholds of a precision-recall curve (TensorBoard's limit)
THRESHOLDS = 127
#: minimum divisor, so that a curve without positives does not become NaN
_LEAST = 1e-7


def _metadata(plugin, content=b""):
    return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin, content=content))


def _shape(*sizes):
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=n) for n in sizes])


def _one(**value):
    return Summary(value=[Summary.Value(**value)])


# ------------------------------------------------------------------ scalars
def scalar(name, tensor, collections=None, new_style=False, double_precision=False):
    """Creates a scalar summary; raises AssertionError for more than one element.

    With `new_style` the value is stored as a tensor, in float64 with `double_precision`.
    """
    value = make_np(tensor).squeeze()
    if value.ndim:
        raise AssertionError(f"Tensor should contain one element (0 dimensions). Was given size: {value.size} and {value.ndim} dimensions.")
    value = float(value)
    if not new_style:
        return _one(tag=name, simple_value=value)
    proto = TensorProto(double_val=[value], dtype="DT_DOUBLE") if double_precision else TensorProto(float_val=[value], dtype="DT_FLOAT")
    return _one(tag=name, tensor=proto, metadata=_metadata("scalars"))


#: NumPy dtype name -> (field of a TensorProto, its dtype name)
_FIELDS = {"float16": ("half_val", "DT_HALF"), "float32": ("float_val", "DT_FLOAT"), "float64": ("double_val", "DT_DOUBLE"),
           "int8": ("int_val", "DT_INT8"), "uint8": ("int_val", "DT_UINT8"), "int16": ("int_val", "DT_INT16"), "int32": ("int_val", "DT_INT32"),
           "int64": ("int64_val", "DT_INT64"), "complex64": ("scomplex_val", "DT_COMPLEX64"), "complex128": ("dcomplex_val", "DT_COMPLEX128"), "bool": ("bool_val", "DT_BOOL")}


def tensor_proto(tag, tensor):
    """Creates a summary of a complete tensor.

    Raises ValueError for dtypes that TensorBoard does not support and for tags longer than its
    limit of 64 KB.
    """
    bfloat16 = is_tensor(tensor) and str(tensor.dtype).endswith("bfloat16")
    a = make_np(tensor)
    if not bfloat16 and a.dtype.name not in _FIELDS:
        raise ValueError(f"{tag} has unsupported tensor dtype {getattr(tensor, 'dtype', a.dtype)}")
    field, kind = ("half_val", "DT_BFLOAT16") if bfloat16 else _FIELDS[a.dtype.name]
    flat = a.reshape(-1)
    if field == "half_val":  # the bit patterns as integers
        values = (flat.view(np.uint32) >> 16 if bfloat16 else flat.view(np.uint16)).tolist()
    elif a.dtype.kind == "c":  # real and imaginary parts interleaved
        values = flat.view(np.float32 if a.dtype.itemsize == 8 else np.float64).tolist()
    else:
        values = flat.tolist()
    return _one(tag=tag, tensor=TensorProto(dtype=kind, tensor_shape=_shape(*(tensor.shape if is_tensor(tensor) else a.shape)), **{field: values}),
                metadata=_metadata("tensor"))


# ------------------------------------------------------------------ histograms
def histogram_raw(name, min, max, num, sum, sum_squares, bucket_limits, bucket_counts):
    """Creates a histogram summary from existing counts."""
    return _one(tag=name, histo=HistogramProto(min=min, max=max, num=num, sum=sum, sum_squares=sum_squares, bucket_limit=bucket_limits, bucket=bucket_counts))


def histogram(name, values, bins, max_bins=None):
    """Creates a histogram summary over `bins` (as in numpy.histogram), merged to at most
    `max_bins`."""
    return _one(tag=name, histo=make_histogram(make_np(values).astype(float), bins, max_bins))


def make_histogram(values, bins, max_bins=None):
    """Returns the HistogramProto of an array; raises ValueError if it is empty."""
    if values.size == 0:
        raise ValueError("The input has no element.")
    values = values.reshape(-1)
    counts, limits = np.histogram(values, bins=bins)
    if max_bins is not None and len(counts) > max_bins:
        # Merge adjacent bins; the last group may be smaller.
        width = len(counts) // max_bins
        starts = np.arange(0, len(counts), width)
        counts, limits = np.add.reduceat(counts, starts), np.append(limits[starts], limits[-1])
    filled = np.flatnonzero(counts)
    if not filled.size:
        raise ValueError("The histogram is empty: no value lies in its bins")
    # Trim to the range of the values plus one empty bucket in front: TensorBoard interprets each
    # limit as the end of its bucket.
    first, last = int(filled[0]), int(filled[-1]) + 1
    counts = counts[first - 1:last] if first else np.concatenate([[0], counts[:last]])
    return HistogramProto(min=values.min(), max=values.max(), num=len(values), sum=values.sum(), sum_squares=values.dot(values),
                          bucket_limit=limits[first:last + 1].tolist(), bucket=counts.tolist())


# ------------------------------------------------------------------ images, audio, text
def _png(picture, rescale=1, draw=None):
    """Returns the Summary.Image of an image (HWC, uint8)."""
    from PIL import Image
    h, w, channels = picture.shape
    drawn = Image.fromarray(picture)
    if draw is not None:
        drawn = draw(drawn)
    size = int(h * rescale), int(w * rescale)
    drawn = drawn.resize(size[::-1], Image.Resampling.LANCZOS)
    out = io.BytesIO()
    drawn.save(out, format="PNG")
    return Summary.Image(height=size[0], width=size[1], colorspace=channels, encoded_image_string=out.getvalue())


def image(tag, tensor, rescale=1, dataformats="NCHW"):
    """Creates a summary of an image or a grid of images; floats from 0 to 1 or uint8. `dataformats`
    names the axes."""
    return _one(tag=tag, image=_png(bytes_of(hwc(make_np(tensor), dataformats)), rescale))


def image_boxes(tag, tensor_image, tensor_boxes, rescale=1, dataformats="CHW", labels=None):
    """Creates a summary of an image with boxes (N x 4: left, top, right, bottom, in pixels) and
    their labels drawn on it."""
    picture = hwc(make_np(tensor_image), dataformats)
    boxes = make_np(tensor_boxes)
    picture = (picture.astype(np.float32) * (1 if picture.dtype == np.uint8 else 255)).clip(0, 255).astype(np.uint8)
    return _one(tag=tag, image=_png(picture, rescale, lambda drawn: draw_boxes(drawn, boxes, labels)))


def draw_boxes(disp_image, boxes, labels=None):
    """Draws red boxes on a PIL image, with their labels inside the lower edge; returns the image.
    """
    from PIL import ImageDraw, ImageFont
    draw, font = ImageDraw.Draw(disp_image), ImageFont.load_default()
    for i, (left, top, right, bottom) in enumerate(boxes.tolist()):
        draw.line([(left, top), (left, bottom), (right, bottom), (right, top), (left, top)], width=2, fill="Red")
        if labels is not None:
            x0, y0, x1, y1 = font.getbbox(labels[i])
            width, height = x1 - x0, y1 - y0
            margin = math.ceil(0.05 * height)
            draw.rectangle([(left, bottom - height - 2 * margin), (left + width, bottom)], fill="Red")
            draw.text((left + margin, bottom - height - margin), labels[i], fill="black", font=font)
    return disp_image


def video(tag, tensor, fps=4):
    """Creates a summary of videos (N x T x C x H x W, floats from 0 to 1 or uint8) as a grid in an
    animated GIF; requires pillow."""
    from PIL import Image
    a = make_np(tensor)
    if a.ndim != 5:
        raise AssertionError(f"expected a video of shape (N, T, C, H, W), got {tuple(a.shape)}")
    # Pad the number of videos to a power of two, so that the grid is rectangular.
    n = 1 << (len(a) - 1).bit_length()
    a = np.concatenate([a, np.zeros((n - len(a), *a.shape[1:]), a.dtype)])
    columns = n // (1 << (n.bit_length() - 1) // 2)
    frames = [bytes_of(np.transpose(grid(a[:, t], columns), (1, 2, 0))) for t in range(a.shape[1])]
    out = io.BytesIO()
    first, *rest = [Image.fromarray(f) for f in frames]
    first.save(out, format="GIF", save_all=True, append_images=rest, duration=1000 / fps, loop=0)
    h, w, c = frames[0].shape
    return _one(tag=tag, image=Summary.Image(height=h, width=w, colorspace=c, encoded_image_string=out.getvalue()))


def audio(tag, tensor, sample_rate=44100):
    """Creates a summary of a mono audio signal from -1 to 1; clips values outside that range and
    prints a warning."""
    a = make_np(tensor).squeeze()
    if abs(a).max() > 1:
        print("warning: audio amplitude out of range, auto clipped.")
        a = a.clip(-1, 1)
    if a.ndim != 1:
        raise AssertionError("input tensor should be 1 dimensional.")
    out = io.BytesIO()
    with wave.open(out, "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(sample_rate)
        w.writeframes((a * np.iinfo(np.int16).max).astype("<i2").tobytes())
    return _one(tag=tag, audio=Summary.Audio(sample_rate=sample_rate, num_channels=1, length_frames=len(a), encoded_audio_string=out.getvalue(),
                                             content_type="audio/wav"))


def text(tag, text):
    """Creates a summary of a Markdown text."""
    from tensorboard.plugins.text.plugin_data_pb2 import TextPluginData
    return _one(tag=tag + "/text_summary", metadata=_metadata("text", TextPluginData(version=0).SerializeToString()),
                tensor=TensorProto(dtype="DT_STRING", string_val=[text.encode("utf-8")], tensor_shape=_shape(1)))


# ------------------------------------------------------------------ precision and recall
def compute_curve(labels, predictions, num_thresholds=None, weights=None):
    """Computes a precision-recall curve at equally spaced thresholds from 0 to 1.

    Returns an array of shape (6, num_thresholds): true positives, false positives, true negatives,
    false negatives, precision, recall.
    """
    weights = 1.0 if weights is None else weights
    labels = labels.astype(float)
    bins = np.floor(predictions * (num_thresholds - 1)).astype(np.int32)
    # For each threshold: everything in its bin or above.
    above = [np.histogram(bins, bins=num_thresholds, range=(0, num_thresholds - 1), weights=w)[0][::-1].cumsum()[::-1]
             for w in (labels * weights, (1 - labels) * weights)]
    return _curve(above[0], above[1], above[1][0] - above[1], above[0][0] - above[0])


def _curve(tp, fp, tn, fn):
    return np.stack((tp, fp, tn, fn, tp / np.maximum(_LEAST, tp + fp), tp / np.maximum(_LEAST, tp + fn)))


def _pr_curves(tag, data, num_thresholds):
    from tensorboard.plugins.pr_curve.plugin_data_pb2 import PrCurvePluginData
    content = PrCurvePluginData(version=0, num_thresholds=num_thresholds).SerializeToString()
    return _one(tag=tag, metadata=_metadata("pr_curves", content),
                tensor=TensorProto(dtype="DT_FLOAT", float_val=data.reshape(-1).tolist(), tensor_shape=_shape(*data.shape)))


def pr_curve(tag, labels, predictions, num_thresholds=THRESHOLDS, weights=None):
    """Creates a precision-recall summary of predictions (from 0 to 1) and labels (0 or 1), arrays
    of equal shape."""
    num_thresholds = min(num_thresholds, THRESHOLDS)
    return _pr_curves(tag, compute_curve(labels, predictions, num_thresholds, weights), num_thresholds)


def pr_curve_raw(tag, tp, fp, tn, fn, precision, recall, num_thresholds=THRESHOLDS, weights=None):
    """Creates a precision-recall summary from an existing curve."""
    return _pr_curves(tag, np.stack((tp, fp, tn, fn, precision, recall)), min(num_thresholds, THRESHOLDS))


# ------------------------------------------------------------------ custom scalars and meshes
def custom_scalars(layout):
    """Creates charts of several scalars: {category: {title: ["Multiline", tags] or ["Margin",
    [value, lower, upper]]}}."""
    from tensorboard.plugins.custom_scalar import layout_pb2 as pb

    def chart(title, kind, tags):
        if kind != "Margin":
            return pb.Chart(title=title, multiline=pb.MultilineChartContent(tag=tags))
        if len(tags) != 3:
            raise AssertionError(f"a margin chart requires three tags (value, lower, upper), got {len(tags)}")
        value, lower, upper = tags
        return pb.Chart(title=title, margin=pb.MarginChartContent(series=[pb.MarginChartContent.Series(value=value, lower=lower, upper=upper)]))
    page = pb.Layout(category=[pb.Category(title=name, chart=[chart(title, *found[:2]) for title, found in charts.items()])
                               for name, charts in layout.items()])
    return _one(tag="custom_scalars__config__", metadata=_metadata("custom_scalars"),
                tensor=TensorProto(dtype="DT_STRING", string_val=[page.SerializeToString()], tensor_shape=TensorShapeProto()))


def mesh(tag, vertices, colors, faces, config_dict, display_name=None, description=None):
    """Creates a summary of a 3D mesh or point cloud.

    Shapes: vertices and colors (B x N x 3), faces (B x M x 3) of indices. colors and faces may be
    None.
    """
    from tensorboard.plugins.mesh import metadata
    from tensorboard.plugins.mesh.plugin_data_pb2 import MeshPluginData as Kind
    given = [(t, kind) for t, kind in ((vertices, Kind.VERTEX), (faces, Kind.FACE), (colors, Kind.COLOR)) if t is not None]
    components = metadata.get_components_bitmask([kind for _, kind in given])
    config = json.dumps(config_dict or {}, sort_keys=True)
    values = []
    for t, kind in given:
        a = make_np(t)
        about = metadata.create_summary_metadata(tag, display_name, kind, components, a.shape, description, json_config=config)
        values.append(Summary.Value(tag=metadata.get_instance_name(tag, kind), metadata=about,
                                    tensor=TensorProto(dtype="DT_FLOAT", float_val=a.reshape(-1).tolist(), tensor_shape=_shape(*a.shape))))
    return Summary(value=values)


# ------------------------------------------------------------------ hyperparameters
def hparams(hparam_dict=None, metric_dict=None, hparam_domain_discrete=None):
    """Returns (experiment, session start, session end), the records of a run for the
    hyperparameters page.

    Values are bool, Python scalars, str or one-element tensors. Raises TypeError and ValueError
    like PyTorch.
    """
    from tensorboard.plugins.hparams.api_pb2 import DataType, Experiment, HParamInfo, MetricInfo, MetricName, Status
    from tensorboard.plugins.hparams.metadata import (EXPERIMENT_TAG, PLUGIN_DATA_VERSION, PLUGIN_NAME, SESSION_END_INFO_TAG,
                                                      SESSION_START_INFO_TAG)
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo
    for name, given in (("hparam_dict", hparam_dict), ("metric_dict", metric_dict)):
        if not isinstance(given, dict):
            logger.warning("parameter: %s should be a dictionary, nothing logged.", name)
            raise TypeError(f"parameter: {name} should be a dictionary, nothing logged.")
    domains = hparam_domain_discrete or {}
    if not isinstance(domains, dict):
        raise TypeError("parameter: hparam_domain_discrete should be a dictionary, nothing logged.")
    for name, domain in domains.items():
        if name not in hparam_dict or not isinstance(domain, list) or not all(isinstance(v, type(hparam_dict[name])) for v in domain):
            raise TypeError(f"parameter: hparam_domain_discrete[{name}] should be a list of same type as hparam_dict[{name}].")

    start, infos = SessionStartInfo(), []
    for name, value in hparam_dict.items():
        if value is None:
            continue
        if is_tensor(value):
            value = make_np(value).reshape(-1)[0].item()
        if isinstance(value, (int, float)):  # also bool, as in PyTorch
            field, kind = "number_value", "DATA_TYPE_FLOAT64"
        elif isinstance(value, str):
            field, kind = "string_value", "DATA_TYPE_STRING"
        else:
            raise ValueError("value should be one of int, float, str, bool, or torch.Tensor")
        setattr(start.hparams[name], field, value)
        info = HParamInfo(name=name, type=DataType.Value(kind))
        for v in domains.get(name, ()):
            setattr(info.domain_discrete.values.add(), field, v)
        infos.append(info)

    experiment = Experiment(hparam_infos=infos, metric_infos=[MetricInfo(name=MetricName(tag=k)) for k in metric_dict])

    def about(tag, **what):
        content = HParamsPluginData(version=PLUGIN_DATA_VERSION, **what).SerializeToString()
        return _one(tag=tag, metadata=_metadata(PLUGIN_NAME, content))
    return (about(EXPERIMENT_TAG, experiment=experiment), about(SESSION_START_INFO_TAG, session_start_info=start),
            about(SESSION_END_INFO_TAG, session_end_info=SessionEndInfo(status=Status.Value("STATUS_SUCCESS"))))
