"""Readers of MNIST and Fashion-MNIST: idx files, with or without gzip compression."""

from __future__ import annotations

import gzip
import math
import mmap
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from algebranets.lab.data.sources import AGAIN, Known, check, content, find_files
from algebranets.lab.data.tensors import ImageTensors, check_labels

STEMS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

#: Sizes and checksums of the published files after unpacking, by data set and file. Packed files may differ.
KNOWN: dict[str, dict[str, Known]] = {
    "mnist": {
        "train-images-idx3-ubyte": Known(47_040_016, "6bbc9ace898e44ae57da46a324031adb"),
        "train-labels-idx1-ubyte": Known(60_008, "a25bea736e30d166cdddb491f175f624"),
        "t10k-images-idx3-ubyte": Known(7_840_016, "2646ac647ad5339dbf082846283269ea"),
        "t10k-labels-idx1-ubyte": Known(10_008, "27ae3e4e09519cfbb04c329615203637"),
    },
    "fashion-mnist": {
        "train-images-idx3-ubyte": Known(47_040_016, "f4a8712d7a061bf5bd6d2ca38dc4d50a"),
        "train-labels-idx1-ubyte": Known(60_008, "9018921c3c673c538a1fc5bad174d6f9"),
        "t10k-images-idx3-ubyte": Known(7_840_016, "8181f5470baa50b63fa0f6fddb340f0a"),
        "t10k-labels-idx1-ubyte": Known(10_008, "15d484375f8d13e6eb1aabb0c3f46965"),
    },
}

#: The largest size that a packed file may unpack to: about twice the largest size above.
MAX_BYTES = 100_000_000

MNIST_CLASSES = tuple("0123456789")
FASHION_CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


def mnist(root: Path) -> ImageTensors:
    """Read MNIST from the folder of data sets, ``root``."""
    folders = ("mnist", "MNIST", "MNIST/raw", "mnist/MNIST/raw", ".")
    return _read("mnist", root, folders, MNIST_CLASSES, "Put its four .gz files there, unpacked or not.")


def fashion_mnist(root: Path) -> ImageTensors:
    """Read Fashion-MNIST from ``root``, or from the folder of the system's package ``dataset-fashion-mnist``."""
    folders = ("fashion-mnist", "FashionMNIST", "FashionMNIST/raw", "fashion-mnist/FashionMNIST/raw", ".")
    how = "Put its four .gz files there, unpacked or not, or install the system's package dataset-fashion-mnist."
    return _read("fashion-mnist", root, (*folders, "/usr/share/datasets/fashion-mnist"), FASHION_CLASSES, how)


def _read(name: str, root: Path, folders: tuple[str, ...], classes: tuple[str, ...], how: str) -> ImageTensors:
    spellings = [(stem, stem.replace("-idx", ".idx")) for stem in STEMS]
    files = [(*names, *(f"{n}.gz" for n in names)) for names in spellings]
    paths = find_files(name, root, folders, files, how)
    parts = []
    for stem, path in zip(STEMS, paths, strict=True):
        data = _unpacked(path, content(path))
        check(path, data, KNOWN[name].get(stem))
        parts.append(array(path, data, num_dims=3 if "images" in stem else 1))
    for i in (0, 2):
        if len(parts[i]) != len(parts[i + 1]):
            raise ValueError(
                f"{paths[i + 1]} must hold a label for each of the {len(parts[i]):,} images of {paths[i].name}; "
                f"it has {len(parts[i + 1]):,}."
            )
        check_labels(f"{paths[i + 1]}'s labels", parts[i + 1], len(classes))
    return ImageTensors(name, parts[0][:, None], parts[1].long(), parts[2][:, None], parts[3].long(), classes)


def _unpacked(path: Path, data: mmap.mmap) -> mmap.mmap | bytes:
    if path.suffix != ".gz":
        return data
    try:
        with gzip.open(data) as file:  # a small file can unpack to a huge one
            unpacked = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is no whole gzip file ({error}): get it again.") from None
    if len(unpacked) > MAX_BYTES:
        raise ValueError(f"{path} must unpack to at most {MAX_BYTES:,} bytes; it has more. {AGAIN}")
    return unpacked


def array(path: Path, data: mmap.mmap | bytes, num_dims: int) -> Tensor:
    """Read the tensor in an idx file of bytes.

    The file starts with two zeros, an 8 for "bytes", the number of dimensions and their sizes.

    >>> array(Path("three"), bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 0, 4]), num_dims=1)
    tensor([5, 0, 4], dtype=torch.uint8)
    """
    start, header = bytes([0, 0, 8, num_dims]), 4 + 4 * num_dims
    if data[:4] != start:
        raise ValueError(
            f"{path} must begin with {start.hex(' ')}, as an idx file of bytes in {num_dims} dimensions does; "
            f"it begins with {data[:4].hex(' ')}. {AGAIN}"
        )
    sizes = struct.unpack(f">{num_dims}I", data[4:header].ljust(4 * num_dims, b"\0"))
    if len(data) != header + math.prod(sizes):
        raise ValueError(
            f"{path} must hold {header + math.prod(sizes):,} bytes for the sizes {sizes} that it gives; "
            f"it has {len(data):,}. {AGAIN}"
        )
    return torch.frombuffer(bytearray(data[header:]), dtype=torch.uint8).view(sizes)
