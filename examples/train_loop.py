"""Convert a hand-written network to M2(R) and train it with a plain torch loop on handwritten digits.

python examples/train_loop.py --steps 200
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import algebranets as an
from algebranets.lab.data import load


class TwoBranches(nn.Module):
    """A network with two branches, joined by `torch.cat`. It is plain torch code."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.near = nn.Conv2d(width, width, 1)
        self.far = nn.Conv2d(width, width // 2, 3, padding=1)
        self.joined = nn.Conv2d(width + width // 2, width, 3, padding=1)
        self.head = nn.Linear(16 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        x = torch.cat([self.near(x), self.far(x)], dim=1)
        x = F.relu(self.joined(F.relu(x)))
        return self.head(F.max_pool2d(x, 2).flatten(1))


def train(steps: int, width: int = 64) -> tuple[nn.Module, float, float]:
    """Return the trained model, and the loss on the test images before and after training."""
    torch.manual_seed(0)
    data = load("digits")
    images, labels = data.train_images / 255, data.train_labels
    model = an.convert(TwoBranches(width), "M2R", inputs=images[:2])
    print(model.conversion)

    def test_loss() -> float:
        with torch.no_grad():
            return F.cross_entropy(model(data.test_images / 255), data.test_labels).item()

    before = test_loss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(steps):
        batch = torch.randint(len(images), (64,))
        loss = F.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    after = test_loss()
    print(f"\nloss on the test images: {before:.3f} before training, {after:.3f} after {steps} steps")
    return model, before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="number of training steps")
    parser.add_argument("--width", type=int, default=64, help="number of channels, a multiple of 8")
    arguments = parser.parse_args()
    train(arguments.steps, arguments.width)
