"""Normalization of pixels, from bytes to floats with mean 0 and variance 1 in each channel."""

from __future__ import annotations

import torch
from jaxtyping import Float, UInt8
from torch import Tensor


class Normalize:
    """A function from images of bytes to normalized images of floats.

    Args:
        mean: The mean of each channel's pixels, between 0 and 1.
        std: The standard deviation of each channel's pixels.
        device: The device of the images.

    >>> normalize = Normalize(mean=(0.5,), std=(0.25,))
    >>> normalize(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1)).flatten()
    tensor([-2.,  2.])
    """

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...], device: torch.device | str = "cpu") -> None:
        # Create the tensors once: creating them for each batch would make the GPU wait for the CPU.
        self.mean = torch.tensor(mean, device=device).mul_(255).view(-1, 1, 1)
        self.std = torch.tensor(std, device=device).mul_(255).view(-1, 1, 1)

    def __call__(self, images: UInt8[Tensor, "batch chan height width"]) -> Float[Tensor, "batch chan height width"]:
        # cuDNN's convolutions are fastest in channels_last.
        layout = torch.channels_last if images.is_cuda else torch.contiguous_format
        return images.to(torch.float32, memory_format=layout).sub_(self.mean).div_(self.std)


def mean_and_std(images: UInt8[Tensor, "num chan height width"]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean and standard deviation of each channel's pixels, scaled to [0, 1]; a constant channel has std 1.

    >>> mean_and_std(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1))
    ((0.5,), (0.5,))
    """
    value = torch.arange(256, dtype=torch.float64) / 255
    means, stds = [], []
    for channel in images.unbind(1):
        # A histogram is exact and needs no copy of all images as floats.
        share = torch.bincount(channel.flatten(), minlength=256).double() / channel.numel()
        mean = float(share @ value)
        means.append(mean)
        stds.append(float(share @ (value - mean).square()) ** 0.5 or 1.0)
    return tuple(means), tuple(stds)
