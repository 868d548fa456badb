"""Convert a timm model to M2(R) and train it with Lightning on handwritten digits.

python examples/train_lightning.py --model resnet10t --epochs 3
"""

import argparse

import lightning.pytorch as pl
import timm
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import algebranets as an
from algebranets.lab.data import load


class Classifier(pl.LightningModule):
    """An ordinary LightningModule. The converted model needs nothing special."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self.model(images), labels)

    def test_step(self, batch: tuple[Tensor, Tensor]) -> None:
        images, labels = batch
        self.log("loss", F.cross_entropy(self.model(images), labels))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def train(name: str, epochs: int, num_images: int | None = None) -> tuple[nn.Module, float, float]:
    """Return the trained model, and the loss on the test images before and after training."""
    pl.seed_everything(0, verbose=False)
    data = load("digits")
    parts = ((data.train_images, data.train_labels), (data.test_images, data.test_labels))
    sets = [TensorDataset(F.interpolate(x[:num_images] / 255, scale_factor=4), y[:num_images]) for x, y in parts]
    training, testing = DataLoader(sets[0], 32, shuffle=True, drop_last=True), DataLoader(sets[1], 128)

    real = timm.create_model(name, in_chans=1, num_classes=10)
    model = an.convert(real, "M2R", inputs=sets[0].tensors[0][:2])
    print(model.conversion)

    task = Classifier(model)
    trainer = pl.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    (before,) = trainer.test(task, testing, verbose=False)
    trainer.fit(task, training)
    (after,) = trainer.test(task, testing, verbose=False)
    print(f"\nloss on the test images: {before['loss']:.3f} before training, {after['loss']:.3f} after epoch {epochs}")
    return model, before["loss"], after["loss"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet10t", help="name of a timm model for images")
    parser.add_argument("--epochs", type=int, default=3, help="number of passes over the images")
    parser.add_argument("--images", type=int, help="number of training images and of test images (default: all)")
    arguments = parser.parse_args()
    train(arguments.model, arguments.epochs, arguments.images)
