"""Masks that grow while a network trains."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from algebranets.pruning.criteria import CRITERIA
from algebranets.pruning.schedule import Schedule
from algebranets.pruning.weights import Weight, prunable

#: What is set to zero at once, and among what the smallest are looked for.
UNITS, SCOPES = ("tuple", "component"), ("layer", "global")


class Kept(nn.Module):
    """A parametrisation of a weight: itself where it is kept, zero elsewhere.

    With ``regrow``, gradients reach what is zero too, as if it were there.
    """

    kept: Tensor

    def __init__(self, weight: Tensor, regrow: bool) -> None:
        super().__init__()
        self.regrow = regrow
        self.register_buffer("kept", torch.ones_like(weight, dtype=torch.bool))

    def forward(self, weight: Tensor) -> Tensor:
        masked = torch.where(self.kept, weight, 0)
        return weight + (masked - weight).detach() if self.regrow else masked


class Pruner:
    """Sets the smallest tuples of a model's weights to zero, more and more of them, and keeps them zero.

    ``target`` of them are zero in the end, on the way that `Schedule` says: by default a cubic from 0.2 to 0.8 of
    ``steps``; without ``steps`` at once. ``criterion`` says what a tuple's size is (`CRITERIA`); ``unit="component"``
    prunes numbers one by one, by their absolute values. The smallest of each layer go, or with ``scope="global"`` the
    smallest of all. ``layers`` are weights as `weights` gives them, or a pattern of their paths, in place of what
    `prunable` chooses.

    With ``regrow`` what is zero goes on learning beside the network, and comes back if it grows larger than what is
    kept (as in Lin et al., 2020): the share stays that of the schedule, the places change until its end.

    Masks are in the model's ``state_dict``, `state_dict` here has the number of steps: with both, and a new `Pruner`
    around the model, training goes on as if it had not stopped.
    """

    def __init__(
        self,
        model: nn.Module,
        target: float,
        steps: int = 0,
        *,
        begin: float = 0.2,
        end: float = 0.8,
        every: int = 100,
        schedule: str = "cubic",
        criterion: str = "norm",
        unit: str = "tuple",
        scope: str = "layer",
        regrow: bool = False,
        layers: Iterable[Weight] | str = "",
    ) -> None:
        self.schedule = Schedule(target, steps, begin, end, every, schedule)
        for name, value, known in (("unit", unit, UNITS), ("scope", scope, SCOPES), ("criterion", criterion, CRITERIA)):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}.")
        self.weights = prunable(model, layers) if isinstance(layers, str) else list(layers)
        if not self.weights:
            raise ValueError("layers must hold some weights of the model, as `pruning.weights` gives them; got none.")
        self.criterion, self.unit, self.scope, self.regrow = criterion, unit, scope, regrow
        self._check_criterion()
        self.count = 0
        for weight in self.weights:
            parametrize.register_parametrization(weight.layer, weight.name, Kept(weight.stored, regrow))
        self.at(0)

    def _check_criterion(self) -> None:
        if self.criterion == "norm":
            return
        if self.unit == "component":
            raise ValueError(f"criterion must be norm where components are pruned one by one; got {self.criterion!r}.")
        for weight in self.weights:
            if weight.algebra.unit is None:
                raise ValueError(
                    f"criterion must be norm over {weight.algebra.name}, which has no unit: all of its tuples divide "
                    f"zero, so that {self.criterion} is no measure of them."
                )

    def step(self) -> None:
        """One more step of training is done."""
        self.count += 1
        self.at(self.count)

    def at(self, step: int) -> None:
        """Step number ``step`` is done: prune, if it is time to."""
        self.count = step
        if self.schedule.due(step):
            self.prune(self.schedule.share(step))

    @torch.no_grad()
    def prune(self, share: float) -> None:
        """Set this share of the smallest to zero, those that are zero already among them."""
        sizes = [self._sizes(weight) for weight in self.weights]
        if self.scope == "global":
            kept = _largest(torch.cat([size.flatten() for size in sizes]), share)
            parts = kept.split([size.numel() for size in sizes])
        else:
            parts = [_largest(size.flatten(), share) for size in sizes]
        for weight, size, part in zip(self.weights, sizes, parts, strict=True):
            mask = part.view_as(size).expand(weight.algebra.dim, *size.shape[-weight.stored.dim() :])
            _kept(weight).copy_(weight.from_tuples(mask))

    def _sizes(self, weight: Weight) -> Tensor:
        """Of each tuple, or of each component; what must not come back is smaller than anything."""
        stored = _original(weight)
        tuples = weight.tuples(stored.to(torch.promote_types(stored.dtype, torch.float32)))
        sizes = tuples.abs() if self.unit == "component" else CRITERIA[self.criterion](tuples, weight.algebra)
        if self.regrow:
            return sizes
        kept = weight.tuples(_kept(weight))
        return torch.where(kept if self.unit == "component" else kept.any(0), sizes, -1)

    @property
    def sparsity(self) -> float:
        """The share of the pruned weights' numbers that is zero."""
        zeros = sum(int((weight.stored == 0).sum()) for weight in self.weights)
        return zeros / sum(weight.stored.numel() for weight in self.weights)

    def state_dict(self) -> dict[str, Any]:
        """What the model's own does not hold."""
        return {"step": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on behind the step at which ``state`` was taken; the model's state holds the masks."""
        self.count = state["step"]

    def finish(self) -> None:
        """Take the masks away; what they hid is zero for good."""
        for weight in self.weights:
            parametrize.remove_parametrizations(weight.layer, weight.name, leave_parametrized=True)


def _largest(sizes: Tensor, share: float) -> Tensor:
    """True for all but this share of the smallest; where several are alike, the first of them go."""
    kept = torch.ones_like(sizes, dtype=torch.bool)
    kept[sizes.argsort(stable=True)[: round(share * sizes.numel())]] = False
    return kept


def _kept(weight: Weight) -> Tensor:
    return weight.layer.parametrizations[weight.name][0].kept  # type: ignore[union-attr, index]


def _original(weight: Weight) -> Tensor:
    return weight.layer.parametrizations[weight.name].original  # type: ignore[union-attr, index]
