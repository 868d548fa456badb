"""Readers of CIFAR-10 and CIFAR-100 in their published formats: binary files, or pickles of Python 2."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from algebranets.lab.data import python2
from algebranets.lab.data.sources import AGAIN, Known, content, find_files
from algebranets.lab.data.tensors import ImageTensors, check_labels

PIXELS = 3 * 32 * 32

CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"
CIFAR100_CLASSES = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
    caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
    flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
    motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
    poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
    squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
    wardrobe whale willow_tree wolf woman worm
"""

#: Sizes and checksums of the published files, by data set and file name.
KNOWN: dict[str, dict[str, Known]] = {
    "cifar10": {
        "data_batch_1": Known(31_035_704, "c99cafc152244af753f735de768cd75f"),
        "data_batch_2": Known(31_035_320, "d4bba439e000b95fd0a9bffe97cbabec"),
        "data_batch_3": Known(31_035_999, "54ebc095f3ab1f0389bbae665268c751"),
        "data_batch_4": Known(31_035_696, "634d18415352ddfa80567beed471001a"),
        "data_batch_5": Known(31_035_623, "482c414d41f54cd18b22e5b47cb7c3cb"),
        "test_batch": Known(31_035_526, "40351d587109b95175f43aff81a1287e"),
        "data_batch_1.bin": Known(30_730_000, "5dd7e06a14cb22eb9f671a540d1b7c25"),
        "data_batch_2.bin": Known(30_730_000, "5ea93a67294ea407fff1d09f752e9692"),
        "data_batch_3.bin": Known(30_730_000, "942cd6a4bcdd0dd3c604fbe906cb4421"),
        "data_batch_4.bin": Known(30_730_000, "ae636b3ba5c66a11e91e8cb52e771fcb"),
        "data_batch_5.bin": Known(30_730_000, "53f37980c15c3d472c316c40844f3f0d"),
        "test_batch.bin": Known(30_730_000, "803d5f7f4d78ea53de84dbe85f74fb6d"),
    },
    "cifar100": {
        "train": Known(md5="16019d7e3df5f24257cddd939b257f8d"),
        "test": Known(md5="f0ef6b0ae62326f3e7ffdfab6717acfc"),
        "train.bin": Known(153_700_000),
        "test.bin": Known(30_740_000),
    },
}


def cifar10(root: Path) -> ImageTensors:
    """Read CIFAR-10 from the folder of data sets, ``root``."""
    folders = ("cifar-10-batches-py", "cifar-10-batches-bin", "cifar10", "cifar-10")
    paths = _find("cifar10", root, folders, [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"])
    return _read("cifar10", paths, CIFAR10_CLASSES.split(), label_bytes=1)


def cifar100(root: Path) -> ImageTensors:
    """Read CIFAR-100 from the folder of data sets, ``root``, with its hundred fine labels."""
    folders = ("cifar-100-python", "cifar-100-binary", "cifar100", "cifar-100")
    paths = _find("cifar100", root, folders, ["train", "test"])
    return _read("cifar100", paths, CIFAR100_CLASSES.split(), label_bytes=2)


def _find(name: str, root: Path, folders: Sequence[str], stems: Sequence[str]) -> list[Path]:
    unpacked, title = folders[:2], folders[3]
    places = (*folders, *(f"{name}/{folder}" for folder in unpacked), ".")
    how = f"Unpack {title}-python.tar.gz or {title}-binary.tar.gz there."
    return find_files(name, root, places, [(stem, f"{stem}.bin") for stem in stems], how)


def _read(name: str, paths: Sequence[Path], classes: Sequence[str], label_bytes: int) -> ImageTensors:
    parts = []
    for path in paths:
        data = content(path, KNOWN[name].get(path.name))
        pixels, labels = _binary(path, data, label_bytes) if path.suffix == ".bin" else _pickled(path, data)
        check_labels(f"{path}'s labels", labels, len(classes))
        parts.append((pixels.view(-1, 3, 32, 32), labels))
    *train, test = parts
    images, labels = (torch.cat(tensors) for tensors in zip(*train, strict=True))
    return ImageTensors(name, images, labels, test[0].clone(), test[1], tuple(classes))


def _binary(path: Path, data: mmap.mmap, label_bytes: int) -> tuple[Tensor, Tensor]:
    """Images and labels of a binary file. Each record has one byte for each label, the finest last, and the pixels."""
    record = label_bytes + PIXELS
    if len(data) % record:
        raise ValueError(f"{path} must hold whole records of {record:,} bytes; it has {len(data):,} bytes. {AGAIN}")
    records = torch.frombuffer(data, dtype=torch.uint8).view(-1, record)
    return records[:, label_bytes:].contiguous(), records[:, label_bytes - 1].long()


def _pickled(path: Path, data: mmap.mmap) -> tuple[Tensor, Tensor]:
    batch = python2.load(path, data)
    labels = batch.get("fine_labels", batch.get("labels")) if isinstance(batch, dict) else None
    if not isinstance(labels, list) or not labels or not all(type(n) is int and 0 <= n < 256 for n in labels):
        raise ValueError(f"{path} must hold a list of small numbers, 'labels' or 'fine_labels'; it does not. {AGAIN}")
    pixels = batch.get("data")
    if not isinstance(pixels, python2.Array) or (pixels.shape, pixels.dtype) != ((len(labels), PIXELS), "u1"):
        found = f"{pixels.dtype} {pixels.shape}" if isinstance(pixels, python2.Array) else type(pixels).__name__
        raise ValueError(f"{path}'s data must be u1 {(len(labels), PIXELS)}; it is {found}. {AGAIN}")
    if len(pixels.data) != len(labels) * PIXELS:
        raise ValueError(f"{path} must hold {len(labels) * PIXELS:,} pixels; it has {len(pixels.data):,}. {AGAIN}")
    return torch.frombuffer(bytearray(pixels.data), dtype=torch.uint8), torch.tensor(labels)
