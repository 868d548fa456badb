"""Images in memory. Whole batches are cropped, flipped and normalized at once, on the model's device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Int, UInt8
from torch import Tensor

from algebranets.lab.data.batches import IGNORED, WHOLE, Batch, Batches, Share, generator
from algebranets.lab.data.order import Order
from algebranets.lab.data.pixels import Normalize, mean_and_std


@dataclass(frozen=True, eq=False, repr=False)
class ImageTensors:
    """A data set of square images in memory.

    Args:
        name: The data set's name.
        train_images: Training images, as bytes.
        train_labels: The class number of each training image.
        test_images: Test images, as bytes.
        test_labels: The class number of each test image.
        classes: The names of the classes.

    >>> images, labels = torch.randint(256, (40, 3, 8, 8), dtype=torch.uint8), torch.arange(40) % 2
    >>> data = ImageTensors("noise", images, labels, images[:10], labels[:10], classes=("even", "odd"))
    >>> batches = data.training(16, padding=1, flip=True, seed=0)
    >>> [(x.shape, y.shape) for x, y in batches.iterate(0, len(batches))]
    [(torch.Size([16, 3, 8, 8]), torch.Size([16])), (torch.Size([16, 3, 8, 8]), torch.Size([16]))]
    """

    name: str
    train_images: UInt8[Tensor, "train chan side side"]
    train_labels: Int[Tensor, " train"]
    test_images: UInt8[Tensor, "test chan side side"]
    test_labels: Int[Tensor, " test"]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        _check("train", self.train_images, self.train_labels, self.num_classes)
        _check("test", self.test_images, self.test_labels, self.num_classes)
        if self.train_images.shape[1:] != self.test_images.shape[1:]:
            raise ValueError(
                "training and test images must be of one size; "
                f"got {tuple(self.train_images.shape[1:])} and {tuple(self.test_images.shape[1:])}."
            )

    def __repr__(self) -> str:
        size = f"{self.channels} x {self.image_size} x {self.image_size}"
        counts = f"{len(self.train_images):,} + {len(self.test_images):,}"
        return f"<{self.name}: {counts} images of {size}, {self.num_classes} classes>"

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def channels(self) -> int:
        return self.train_images.shape[1]

    @property
    def image_size(self) -> int:
        """The side of the images, in pixels."""
        return self.train_images.shape[3]

    @property
    def mean(self) -> tuple[float, ...]:
        """The mean of each channel of the training images, between 0 and 1."""
        return self._mean_and_std[0]

    @property
    def std(self) -> tuple[float, ...]:
        """The standard deviation of each channel of the training images."""
        return self._mean_and_std[1]

    @cached_property
    def _mean_and_std(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return mean_and_std(self.train_images)

    def training(
        self,
        batch_size: int,
        *,
        crop: int | None = None,
        padding: int = 0,
        flip: bool = False,
        workers: int = 0,  # noqa: ARG002, folders use it
        seed: int = 0,
        device: torch.device | str = "cpu",
        share: Share = WHOLE,
    ) -> Batches:
        """Shuffled batches of random crops. The images are copied to the device once, as bytes.

        Args:
            batch_size: Images in a batch, over all processes.
            crop: The side of the crops; by default the images' side.
            padding: The number of black pixels on each side of an image before it is cropped.
            flip: Whether half of the images are mirrored.
            workers: Not used here; folders of images use it.
            seed: Decides order, crops and mirroring.
            device: The device of the batches.
            share: The rows that this process takes.
        """
        if not 0 <= padding <= self.image_size:
            raise ValueError(
                f"padding must lie between 0 and {self.image_size}, the side of {self.name}'s images; got {padding}."
            )
        crop = self.image_size if crop is None else crop
        padded = self.image_size + 2 * padding
        if not 0 < crop <= padded:
            raise ValueError(
                f"crop must lie between 1 and {padded}, the side of {self.name}'s images with their padding; "
                f"got crop={crop} and padding={padding}."
            )
        order, rows = Order(len(self.train_images), batch_size, seed), share.rows(batch_size)
        images, labels = F.pad(self.train_images.to(device), (padding,) * 4), self.train_labels.to(device)
        normalize = Normalize(self.mean, self.std, device)
        return TrainingImages(images, labels, order, rows, crop, flip, seed, normalize)

    def evaluation(
        self,
        batch_size: int,
        *,
        workers: int = 0,  # noqa: ARG002, folders use it
        device: torch.device | str = "cpu",
        share: Share = WHOLE,
        crop: int | None = None,  # noqa: ARG002, folders use it
    ) -> Batches:
        """Batches of whole test images, in order; rows after the last image have the label `IGNORED`.

        Args:
            batch_size: Images in a batch, over all processes.
            workers: Not used here; folders of images use it.
            device: The device of the batches.
            share: The rows that this process takes.
            crop: Not used here; folders of images use it.
        """
        batch_size = share.at_most(batch_size, len(self.test_images))
        order, rows = Order(len(self.test_images), batch_size), share.rows(batch_size)
        images, labels = self.test_images.to(device), self.test_labels.to(device)
        return TestImages(images, labels, order, rows, Normalize(self.mean, self.std, device))


@dataclass(frozen=True, eq=False, repr=False)
class TrainingImages(Batches):
    """The training batches of `ImageTensors`."""

    images: UInt8[Tensor, "train chan padded padded"]
    labels: Int[Tensor, " train"]
    order: Order
    rows: slice
    crop: int
    flip: bool
    seed: int
    normalize: Normalize

    def __len__(self) -> int:
        return len(self.order)

    def iterate(self, start: int, stop: int) -> Iterator[Batch]:
        device, batch_size = self.images.device, self.order.batch_size
        # Every window of every image, as a view: (image, channel, top, left, row, column).
        windows = self.images.unfold(2, self.crop, 1).unfold(3, self.crop, 1)
        for epoch, place, examples in self.order.steps(start, stop, device):
            examples = examples[self.rows]
            # Draw for the whole batch, so that several processes together get the same crops as one process.
            source = generator(self.seed, epoch, place, device=device)
            top, left = torch.randint(windows.shape[2], (2, batch_size), generator=source, device=device)[:, self.rows]
            mirrored = torch.rand(batch_size, generator=source, device=device)[self.rows] < 0.5
            images = windows[examples, :, top, left]
            if self.flip:
                images = torch.where(mirrored[:, None, None, None], images.flip(3), images)
            yield self.normalize(images), self.labels[examples]


@dataclass(frozen=True, eq=False, repr=False)
class TestImages(Batches):
    """The test batches of `ImageTensors`."""

    images: UInt8[Tensor, "test chan side side"]
    labels: Int[Tensor, " test"]
    order: Order
    rows: slice
    normalize: Normalize

    def __len__(self) -> int:
        return len(self.order)

    def iterate(self, start: int, stop: int) -> Iterator[Batch]:
        for _, _, examples in self.order.steps(start, stop, self.images.device):
            examples = examples[self.rows]
            there = examples.clamp(min=0)
            yield self.normalize(self.images[there]), self.labels[there].masked_fill(examples < 0, IGNORED)


def _check(part: str, images: Tensor, labels: Tensor, num_classes: int) -> None:
    if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[2] != images.shape[3] or not len(images):
        raise ValueError(
            f"{part}_images must be uint8 (number, channels, side, side), at least one; "
            f"got {images.dtype} {tuple(images.shape)}."
        )
    if labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
        raise ValueError(
            f"{part}_labels must be int64, one for each of {len(images)} images; "
            f"got {labels.dtype} {tuple(labels.shape)}."
        )
    check_labels(f"{part}_labels", labels, num_classes)


def check_labels(what: str, labels: Tensor, num_classes: int) -> None:
    """Raise an error if labels are not between 0 and ``num_classes - 1``; ``what`` names the labels in the error."""
    if not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        raise ValueError(
            f"{what} must lie between 0 and {num_classes - 1}; got labels from {labels.min()} to {labels.max()}."
        )
