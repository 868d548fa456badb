"""Magnitude pruning of whole tuples (Section 4.2), on the schedule of Zhu and Gupta (2017).

A tuple that is zero needs no product at all; that is why tuples are pruned, and not their components one by one.

>>> import algebranets as an
>>> from algebranets.pruning import Pruner
>>> model = an.models.create("cifar_resnet", algebra="M2R", num_blocks=1)
>>> pruner = Pruner(model, target=0.9, steps=1000)
>>> for _ in range(1000):  # behind each step of the optimiser
...     pruner.step()
>>> round(pruner.sparsity, 2)
0.9
>>> pruner.finish()  # plain weights again, with zeros
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from algebranets import product
from algebranets.nn.linear import Linear, Weighted

#: What is set to zero at once.
UNITS = ("tuple", "component")


class Kept(nn.Module):
    """A parametrisation of a weight: itself where it is kept, zero elsewhere."""

    kept: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("kept", torch.ones_like(weight, dtype=torch.bool))

    def forward(self, weight: Tensor) -> Tensor:
        return torch.where(self.kept, weight, 0)


class Pruner:
    """Sets the smallest tuples of each layer to zero, more and more of them, and keeps them zero.

    Sparsity rises as a cubic from 0 at the share ``begin`` of ``steps`` to ``target`` at the share ``end``, every
    ``every`` steps. Masks are in the model's ``state_dict``, and follow from the step and the weights: a run that is
    resumed behind some step goes on by ``at``. ``layers`` are those to prune, otherwise what `prunable` gives.
    """

    def __init__(
        self,
        model: nn.Module,
        target: float,
        steps: int,
        *,
        begin: float = 0.2,
        end: float = 0.8,
        every: int = 100,
        unit: str = "tuple",
        layers: Iterable[Weighted] | None = None,
    ) -> None:
        if not 0 <= target < 1:
            raise ValueError(f"target must lie between 0 and 1, the share of tuples to prune; got {target}.")
        if not 0 <= begin < end <= 1:
            raise ValueError(f"begin and end must be shares of training with begin < end; got {begin} and {end}.")
        if every < 1 or steps // every * every < end * steps:
            raise ValueError(
                f"every must be at least 1 and have a multiple among the last steps, from {end:g} of {steps} on, for "
                f"the target to be reached; got {every}."
            )
        if unit not in UNITS:
            raise ValueError(f"unit must be one of {', '.join(UNITS)}; got {unit!r}.")
        self.target, self.steps, self.begin, self.end, self.every, self.unit = target, steps, begin, end, every, unit
        self.layers = list(prunable(model) if layers is None else layers)
        self.count = 0
        if not self.layers:
            raise ValueError(f"{type(model).__name__} has no layer to prune: it must have some of algebranets.nn.")
        for layer in self.layers:
            parametrize.register_parametrization(layer, "weight", Kept(layer.weight))

    def step(self) -> None:
        """One more step of training is done."""
        self.count += 1
        self.at(self.count)

    def at(self, step: int) -> None:
        """Step number ``step`` is done: prune, if it is time to."""
        if step % self.every == 0 and self.begin * self.steps < step <= self.end * self.steps + self.every:
            self.prune(self.due(step))

    def due(self, step: int) -> float:
        """The share that is to be zero behind ``step``."""
        done = (step / self.steps - self.begin) / (self.end - self.begin)
        return self.target * (1 - (1 - min(1.0, max(0.0, done))) ** 3)

    @torch.no_grad()
    def prune(self, share: float) -> None:
        """Set this share of each layer's smallest tuples to zero, those that are zero already among them."""
        for layer in self.layers:
            tuples = layer.weight_tuples
            size = tuples.abs() if self.unit == "component" else tuples.norm(dim=0)
            smallest = size.flatten().argsort(stable=True)[: round(share * size.numel())]
            kept = torch.ones_like(size, dtype=torch.bool)
            kept.view(-1)[smallest] = False
            mask = kept.expand_as(tuples)
            stored = product.weight_from_tuples(mask, layer.algebra, layer.transposed)
            layer.parametrizations.weight[0].kept.copy_(stored)  # type: ignore[union-attr, index]

    @property
    def sparsity(self) -> float:
        """The share of the pruned layers' weights that is zero."""
        zeros = sum(int((layer.weight == 0).sum()) for layer in self.layers)
        return zeros / sum(layer.weight.numel() for layer in self.layers)

    def finish(self) -> None:
        """Take the masks away; what they hid is zero for good."""
        for layer in self.layers:
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)


def prunable(model: nn.Module) -> list[Weighted]:
    """Every linear layer and convolution over an algebra but the first convolution and the last linear layer.

    The Lift is never among them: its layers are real ones.
    """
    layers = [module for module in model.modules() if isinstance(module, Weighted)]
    convolutions = [layer for layer in layers if not isinstance(layer, Linear)]
    linears = [module for module in model.modules() if isinstance(module, Linear | nn.Linear)]
    spared = (*convolutions[:1], *linears[-1:])
    return [layer for layer in layers if layer not in spared]
