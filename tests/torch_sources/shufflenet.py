"""A unit of ShuffleNet-v2 in plain torch: half of the channels go through convolutions, then all are shuffled."""

import torch
from torch import nn


class Unit(nn.Module):
    def __init__(self, channels):
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            nn.Conv2d(half, half, 1, bias=False),
            nn.BatchNorm2d(half),
            nn.ReLU(inplace=True),
            nn.Conv2d(half, half, 3, padding=1, groups=half, bias=False),
            nn.BatchNorm2d(half),
            nn.Conv2d(half, half, 1, bias=False),
            nn.BatchNorm2d(half),
            nn.ReLU(inplace=True),
        )
        self.shuffle = nn.ChannelShuffle(2)

    def forward(self, x):
        same, other = torch.chunk(x, 2, dim=1)
        return self.shuffle(torch.cat([same, self.branch(other)], dim=1))


def make():
    return Unit(32)


def example():
    return torch.randn(2, 32, 5, 7)
