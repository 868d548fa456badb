"""Folders of images, such as ImageNet: workers crop and flip them, and the model's device normalizes them.

torchvision is imported only when batches are made, so other data sets do not need it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from algebranets import checks
from algebranets.lab.data.batches import IGNORED, WHOLE, Batch, Batches, Share, seed_of
from algebranets.lab.data.folders import Listing, read_folder
from algebranets.lab.data.order import Order
from algebranets.lab.data.pixels import Normalize
from algebranets.lab.data.sources import find_folder

#: The numbers of training images, evaluation images and classes of the data sets that must be complete.
KNOWN = {"imagenet": (1_281_167, 50_000, 1_000)}
#: The largest ``crop``.
MAX_SIDE = 8192
#: The largest ratio of an image's sides. A narrow strip would become huge when its shorter side is scaled up.
MAX_RATIO = 100


class ImageFolder:
    """A folder with ``train/<class>/<images>`` and ``val/<class>/<images>``.

    Args:
        root: The folder.
        name: The data set's name; by default the folder's name.
        image_size: The side of the images in batches, unless ``crop`` is given.

    >>> data = ImageFolder("/data/flowers")  # doctest: +SKIP
    >>> batches = data.training(256, crop=224, flip=True, workers=16, device="cuda")  # doctest: +SKIP
    >>> images, labels = next(batches.iterate(0, 1))  # doctest: +SKIP
    """

    channels: int = 3
    #: The mean and standard deviation of ImageNet's pixels. All folders use them.
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)

    def __init__(self, root: Path | str, name: str | None = None, image_size: int = 224) -> None:
        self.root = Path(root)
        self.name = name or self.root.absolute().name
        self.image_size = image_size
        self.classes, self._train, self._test = read_folder(self.root)
        found = (len(self._train), len(self._test), len(self.classes))
        expected = KNOWN.get(name or "", found)
        if found != expected:
            raise ValueError(
                f"{self.root} must hold {_counts(*expected)} to be {name}; it has {_counts(*found)}. "
                "Give its path in place of the name to use it as it is."
            )

    def __repr__(self) -> str:
        return f"<{self.name}: {_counts(len(self._train), len(self._test), self.num_classes)}>"

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    def training(
        self,
        batch_size: int,
        *,
        crop: int | None = None,
        padding: int = 0,
        flip: bool = False,
        workers: int = 0,
        seed: int = 0,
        device: torch.device | str = "cpu",
        share: Share = WHOLE,
    ) -> Batches:
        """Shuffled batches of random resized crops.

        Args:
            batch_size: Images in a batch, over all processes.
            crop: The side that each crop is scaled to; by default ``image_size``.
            padding: Must be 0; only `ImageTensors` supports padding.
            flip: Whether half of the images are mirrored.
            workers: The number of processes that read the files.
            seed: Decides order, crops and mirroring.
            device: The device of the batches.
            share: The rows that this process takes.
        """
        if padding:
            raise ValueError(f"padding must be 0 for a folder of images, whose parts are scaled; got {padding}.")
        v2 = _transforms()
        steps = [v2.RandomResizedCrop(self._side(crop), antialias=True), *[v2.RandomHorizontalFlip()] * flip]
        images = Images(self._train, v2.Compose([*steps, v2.PILToTensor()]), seed)
        return self._batches(images, Order(len(images), batch_size, seed), workers, device, share)

    def evaluation(
        self,
        batch_size: int,
        *,
        workers: int = 0,
        device: torch.device | str = "cpu",
        share: Share = WHOLE,
        crop: int | None = None,
    ) -> Batches:
        """Batches of center crops, in order; rows after the last image have the label `IGNORED`.

        Args:
            batch_size: Images in a batch, over all processes.
            workers: The number of processes that read the files.
            device: The device of the batches.
            share: The rows that this process takes.
            crop: The side of the crops; by default ``image_size``.
        """
        v2, side = _transforms(), self._side(crop)
        steps = [v2.Resize(round(side * 256 / 224), antialias=True), v2.CenterCrop(side), v2.PILToTensor()]
        images = Images(self._test, v2.Compose(steps))
        order = Order(len(images), share.at_most(batch_size, len(images)))
        return self._batches(images, order, workers, device, share)

    def _side(self, crop: int | None) -> int:
        side = self.image_size if crop is None else crop
        checks.between("crop", side, 1, MAX_SIDE)
        return side

    def _batches(
        self, images: Images, order: Order, workers: int, device: torch.device | str, share: Share
    ) -> FolderBatches:
        normalize = Normalize(self.mean, self.std, device)
        return FolderBatches(images, order, share.rows(order.batch_size), workers, torch.device(device), normalize)


@dataclass(frozen=True, eq=False, repr=False)
class FolderBatches(Batches):
    """The batches of an `ImageFolder`."""

    images: Images
    order: Order
    rows: slice
    workers: int
    device: torch.device
    normalize: Normalize

    def __len__(self) -> int:
        return len(self.order)

    def iterate(self, start: int, stop: int) -> Iterator[Batch]:
        loader = DataLoader(
            self.images,
            batch_sampler=self._keys(start, stop),
            num_workers=self.workers,
            pin_memory=self.device.type == "cuda",
            generator=torch.Generator(),  # otherwise DataLoader would draw from torch's global generator
        )
        try:
            for images, labels in loader:
                # Copy bytes, which are a quarter of the size of floats.
                images = images.to(self.device, non_blocking=True)
                yield self.normalize(images), labels.to(self.device, non_blocking=True)
        except ValueError as error:  # the message of a worker's error is its whole traceback
            raise ValueError(str(error).strip().splitlines()[-1].removeprefix("ValueError: ")) from None

    def _keys(self, start: int, stop: int) -> Iterator[list[tuple[int, int]]]:
        """Yield each batch as a list of keys for the workers: (number of the pass, number of the image)."""
        for epoch, _, examples in self.order.steps(start, stop):
            yield [(epoch, example) for example in examples[self.rows].tolist()]


@dataclass(frozen=True, eq=False, repr=False)
class Images(Dataset[tuple[Tensor, int]]):
    """Images as bytes, indexed by (pass, number); number -1 gives the first image with the label `IGNORED`."""

    listing: Listing
    transform: Any
    seed: int = 0

    def __len__(self) -> int:
        return len(self.listing)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, int]:
        epoch, number = key
        image = _open(self.listing.files[max(number, 0)])
        label = self.listing.labels[number] if number >= 0 else IGNORED
        # torchvision draws from torch's global generator. Seed it, so that the worker's earlier draws do not matter.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed_of(self.seed, epoch, number))
            return self.transform(image), label


def imagenet(root: Path) -> ImageFolder:
    """Open ImageNet (ILSVRC 2012) in the folder of data sets, ``root``."""
    how = (
        "Unpack ILSVRC2012_img_train.tar into train/<wnid>/, and sort the images of ILSVRC2012_img_val.tar into "
        "folders by class, val/<wnid>/."
    )
    folders = ("imagenet", "ImageNet", "imagenet-1k", "ILSVRC2012", "ILSVRC/Data/CLS-LOC", ".")
    return ImageFolder(find_folder("imagenet", root, folders, how), "imagenet")


def tiny_imagenet(root: Path) -> ImageFolder:
    """Open Tiny ImageNet in ``root``, as published or as a folder of images; it need not have all 200 classes."""
    folders = ("tiny-imagenet", "tiny-imagenet-200", "tiny-imagenet/tiny-imagenet-200", ".")
    folder = find_folder("tiny-imagenet", root, folders, "Unpack tiny-imagenet-200.zip there.")
    return ImageFolder(folder, "tiny-imagenet", image_size=64)


def _open(file: str) -> Any:
    from PIL import Image

    try:
        with Image.open(file) as image:  # PIL refuses more than 179 million pixels
            if max(image.size) > MAX_RATIO * min(image.size):
                raise ValueError(f"its sides must not differ by more than {MAX_RATIO} times, and are {image.size}")
            return image.convert("RGB")
    except Exception as error:  # a damaged image may raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{file} is no image that can be read ({reason}): get it again or remove it.") from None


def _transforms() -> Any:
    try:
        from torchvision.transforms import v2  # type: ignore[import-untyped]
    except ImportError:
        raise ValueError(
            "folders of images need torchvision, which is not installed: pip install 'algebranets[vision]'."
        ) from None
    return v2


def _counts(num_train: int, num_test: int, num_classes: int) -> str:
    return f"{num_train:,} + {num_test:,} images of {num_classes:,} classes"
