"""DenseNet-121 in plain torch: each layer reads the outputs of all earlier layers in its block, joined by torch.cat."""

import torch
from torch import nn


class DenseLayer(nn.Module):
    def __init__(self, num_in, growth):
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(num_in),
            nn.ReLU(inplace=True),
            nn.Conv2d(num_in, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(inplace=True),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x):
        return torch.cat([x, self.layers(x.clone())], dim=1)


def transition(num_in, num_out):
    return nn.Sequential(
        nn.BatchNorm2d(num_in), nn.ReLU(inplace=True), nn.Conv2d(num_in, num_out, 1, bias=False), nn.AvgPool2d(2)
    )


class DenseNet(nn.Module):
    def __init__(self, in_channels, num_classes=1000, growth=32, blocks=(6, 12, 24, 16), width=64):
        super().__init__()
        layers = [
            nn.Conv2d(in_channels, width, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        ]
        for number, num_layers in enumerate(blocks):
            if number:
                layers.append(transition(width, width // 2))
                width //= 2
            layers += [DenseLayer(width + k * growth, growth) for k in range(num_layers)]
            width += num_layers * growth
        self.features = nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(width, num_classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
            elif isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, x):
        return self.head(self.features(x))


def make():
    return DenseNet(4)


def example():
    return torch.randn(2, 4, 32, 32)
