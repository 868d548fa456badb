"""A U-Net in plain torch, whose skip connections join channels with torch.cat."""

import torch
from torch import nn


def double_conv(num_in, num_out):
    return nn.Sequential(
        nn.Conv2d(num_in, num_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(num_out),
        nn.ReLU(inplace=True),
        nn.Conv2d(num_out, num_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(num_out),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, in_channels, out_channels, widths=(16, 32, 64)):
        super().__init__()
        self.down = nn.ModuleList(double_conv(a, b) for a, b in zip((in_channels, *widths), widths, strict=False))
        self.pool = nn.MaxPool2d(2)
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in pairs)
        self.up = nn.ModuleList(double_conv(2 * b, b) for _, b in pairs)
        self.head = nn.Conv2d(widths[0], out_channels, 1)

    def forward(self, x):
        skips = []
        for level, conv in enumerate(self.down):
            x = conv(x if level == 0 else self.pool(x))
            skips.append(x)
        for grow, conv, skip in zip(self.grow, self.up, skips[-2::-1], strict=True):
            x = conv(torch.cat([skip, grow(x)], dim=1))
        return self.head(x)


def make():
    return UNet(4, 8)


def example():
    return torch.randn(2, 4, 8, 12)
