"""Files of TensorBoard's projector: points, labels, sprite image and the config that references
them."""
import math
import os

import numpy as np

from mindtorch.torch.utils.tensorboard._arrays import grid


def write_points(points, folder):
    """Writes tensors.tsv, one row per point."""
    with open(os.path.join(folder, "tensors.tsv"), "w", encoding="utf-8") as f:
        f.writelines("\t".join(str(v) for v in row) + "\n" for row in points)


def write_labels(labels, folder, header=None):
    """Writes metadata.tsv: one label per point, or one row of labels if there is a header."""
    if header:
        if len(header) != len(labels[0]):
            raise AssertionError(f"the header has {len(header)} columns, but the metadata has {len(labels[0])}")
        labels = ["\t".join(header), *("\t".join(str(v) for v in row) for row in labels)]
    with open(os.path.join(folder, "metadata.tsv"), "w", encoding="utf-8") as f:
        f.writelines(f"{label}\n" for label in labels)


def write_sprite(images, folder):
    """Writes sprite.png: all images (NCHW, from 0 to 1) in one square, in the projector's layout.
    """
    from PIL import Image
    page = np.transpose(grid(images, math.ceil(math.sqrt(len(images)))), (1, 2, 0))
    square = np.zeros((page.shape[1], page.shape[1], 3), page.dtype)
    square[:page.shape[0]] = page
    Image.fromarray((square * 255).astype(np.uint8)).save(os.path.join(folder, "sprite.png"))


def entry(labels, images, folder, step, tag):
    """Returns the projector config entry of one embedding."""
    from tensorboard.plugins.projector.projector_config_pb2 import EmbeddingInfo
    info = EmbeddingInfo(tensor_name=f"{tag}:{step:05d}" if isinstance(step, int) else f"{tag}:{str(step).zfill(5)}", tensor_path=f"{folder}/tensors.tsv")
    if labels is not None:
        info.metadata_path = f"{folder}/metadata.tsv"
    if images is not None:
        info.sprite.image_path = f"{folder}/sprite.png"
        info.sprite.single_image_dim.extend([images.shape[3], images.shape[2]])
    return info
