"""Images from a folder, or synthetic images.

The folder has one subfolder per class: train/CLASS/*.jpg, val/CLASS/*.jpg.
"""
import os

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

MEAN = np.array([0.485, 0.456, 0.406], np.float32)[:, None, None]
STD = np.array([0.229, 0.224, 0.225], np.float32)[:, None, None]


class Synthetic(Dataset):
    """Synthetic images: a fixed random pattern per class, plus noise."""

    def __init__(self, count, classes, size, seed):
        patterns = np.random.RandomState(1).randn(classes, 3, size, size).astype(np.float32)
        rs = np.random.RandomState(seed)
        self.labels = rs.randint(0, classes, count)
        self.images = 0.5 * patterns[self.labels] + rs.randn(count, 3, size, size).astype(np.float32)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return torch.from_numpy(self.images[i]), int(self.labels[i])


class Folder(Dataset):
    """Images of a folder. Needs Pillow.

    Training uses a random crop and a random horizontal flip; evaluation uses the centre crop.
    """

    def __init__(self, root, size, train):
        self.classes = sorted(e.name for e in os.scandir(root) if e.is_dir())
        self.files = [(os.path.join(root, c, f), i) for i, c in enumerate(self.classes) for f in sorted(os.listdir(os.path.join(root, c)))
                      if f.lower().endswith((".jpg", ".jpeg", ".png", ".bmp", ".webp"))]
        if not self.files:
            raise FileNotFoundError(f"no images in the subfolders of {root}")
        self.size, self.train = size, train

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        from PIL import Image
        path, label = self.files[i]
        with Image.open(path) as image:
            image = image.convert("RGB")
            w, h = image.size
            if self.train:
                part = float(torch.empty(1).uniform_(0.3, 1.0)) ** 0.5
                cw, ch = int(w * part), int(h * part)
                x, y = int(torch.randint(w - cw + 1, (1,))), int(torch.randint(h - ch + 1, (1,)))
                box = (x, y, x + cw, y + ch)
            else:
                side = min(w, h) * 0.875
                box = ((w - side) / 2, (h - side) / 2, (w + side) / 2, (h + side) / 2)
            a = np.asarray(image.resize((self.size, self.size), Image.BILINEAR, box=box), np.float32).transpose(2, 0, 1) / 255
        if self.train and torch.rand(1) < 0.5:
            a = a[:, :, ::-1]
        return torch.from_numpy(np.ascontiguousarray((a - MEAN) / STD)), label


def loader(args, train):
    """Returns (DataLoader, number of classes)."""
    if args.data:
        dataset = Folder(os.path.join(args.data, "train" if train else "val"), args.image_size, train)
        classes = len(dataset.classes)
    else:
        dataset, classes = Synthetic(args.synthetic if train else args.synthetic // 2, args.classes, args.image_size, 2 + train), args.classes
    return DataLoader(dataset, args.batch_size, shuffle=train, drop_last=train, num_workers=args.workers), classes


def add_options(parser):
    parser.add_argument("--arch", choices=["resnet18", "resnet50"], default="resnet50")
    parser.add_argument("--data", metavar="FOLDER", help="folder with train/CLASS/*.jpg and val/CLASS/*.jpg; default: synthetic images")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu, npu, cuda")
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
    parser.add_argument("--classes", type=int, default=10, help="number of classes of the synthetic images")
    parser.add_argument("--synthetic", type=int, default=256, help="number of synthetic training images")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--double", action="store_true", help="compute in float64, so that runs can be compared digit by digit")
