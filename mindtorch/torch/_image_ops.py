"""Operators of the namespace "image" (reading and writing images), based on Pillow. Tensors are
uint8 of shape [C, H, W]."""
import io

from mindtorch.backend.cpu import vision
from mindtorch.core.tensor.dtypes import U8
from mindtorch.core.tensor.sync import tensor_from, to_host
from mindtorch.torch import _ops

_MODES = {0: None, 1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def _op(schema):
    def deco(fn):
        _ops.define("image", schema).kernels["CompositeImplicitAutograd"] = fn
        return fn
    return deco


def _pillow():
    try:
        from PIL import Image, ImageOps, ImageSequence
    except ImportError as err:
        raise RuntimeError("reading and writing images requires Pillow, which is not installed") from err
    return Image, ImageOps, ImageSequence


def _bytes(data):
    if data.dim() != 1 or data._np_dtype != U8 or not data._numel:
        raise RuntimeError("Expected a non empty 1-dimensional tensor of torch.uint8")
    return to_host(data).tobytes()


def _open(data, formats=None):
    image, _, _ = _pillow()
    raw = _bytes(data)
    try:
        return image.open(io.BytesIO(raw), formats=formats)
    except (OSError, SyntaxError) as err:
        raise RuntimeError(f"not an image in one of the formats {formats or 'that Pillow supports'}: {err}") from err


def _decode(data, mode, apply_exif_orientation, formats=None):
    picture = _open(data, formats)
    if apply_exif_orientation:
        picture = _pillow()[1].exif_transpose(picture)
    if picture.mode.startswith("I;16") or picture.mode == "I":
        if mode not in (0, 1):
            raise NotImplementedError(f"image::decode of a 16-bit grayscale image supports only mode 0 (unchanged) and 1 (gray), got {mode}")
        return tensor_from(vision.gray16(picture))
    target = _MODES[mode]
    if target is None and picture.mode in ("P", "1", "CMYK", "PA"):
        target = "RGBA" if "transparency" in picture.info or picture.mode == "PA" else "L" if picture.mode == "1" else "RGB"
    return tensor_from(vision.pixels(picture if target in (None, picture.mode) else picture.convert(target)))


@_op("read_file(str filename) -> Tensor")
def read_file(filename):
    """Returns the bytes of a file."""
    try:
        return tensor_from(vision.read_bytes(filename))
    except OSError as err:
        raise RuntimeError(f"[Errno {err.errno}] {err.strerror}: '{filename}'") from err


@_op("write_file(str filename, Tensor data) -> ()")
def write_file(filename, data):
    """Writes bytes to a file."""
    with open(filename, "wb") as f:
        f.write(_bytes(data))


@_op("decode_image(Tensor data, int mode, bool apply_exif_orientation=False) -> Tensor")
def decode_image(data, mode, apply_exif_orientation=False):
    """Decodes an image of any format that Pillow supports. An animated GIF has shape [N, C, H, W].
    """
    if _bytes(data)[:4] == b"GIF8":
        return decode_gif(data)
    return _decode(data, mode, apply_exif_orientation)


@_op("decode_png(Tensor data, int mode, bool apply_exif_orientation=False) -> Tensor")
def decode_png(data, mode, apply_exif_orientation=False):
    return _decode(data, mode, apply_exif_orientation, ["PNG"])


@_op("decode_jpeg(Tensor data, int mode, bool apply_exif_orientation=False) -> Tensor")
def decode_jpeg(data, mode, apply_exif_orientation=False):
    return _decode(data, mode, apply_exif_orientation, ["JPEG"])


@_op("decode_webp(Tensor encoded_data, int mode) -> Tensor")
def decode_webp(encoded_data, mode):
    return _decode(encoded_data, mode, False, ["WEBP"])


@_op("decode_gif(Tensor data) -> Tensor")
def decode_gif(data):
    """Returns shape [C, H, W], or [N, C, H, W] for several frames."""
    picture = _open(data, ["GIF"])
    frames = vision.frames([f.convert("RGB") for f in _pillow()[2].Iterator(picture)])
    return tensor_from(frames[0] if len(frames) == 1 else frames)


def _encode(data, kind, **options):
    if data._np_dtype != U8:
        raise RuntimeError("Input tensor dtype should be uint8")
    if data.dim() != 3 or data.shape[0] not in (1, 3):
        raise RuntimeError(f"The number of channels should be 1 or 3, got: {tuple(data.shape)}")
    picture = _pillow()[0].fromarray(vision.pillow_layout(to_host(data)))
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return tensor_from(vision.as_bytes(out.getvalue()))


@_op("encode_png(Tensor data, int compression_level) -> Tensor")
def encode_png(data, compression_level):
    """Returns the bytes of a PNG file."""
    return _encode(data, "PNG", compress_level=compression_level)


@_op("encode_jpeg(Tensor data, int quality) -> Tensor")
def encode_jpeg(data, quality):
    """Returns the bytes of a JPEG file."""
    return _encode(data, "JPEG", quality=quality)


@_op("_jpeg_version() -> int")
def _jpeg_version():
    return -1


@_op("_is_compiled_against_turbo() -> bool")
def _is_compiled_against_turbo():
    return False
