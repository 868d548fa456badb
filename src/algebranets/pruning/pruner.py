"""`Pruner`, which sets more and more tuples of a model to zero while it trains."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from algebranets import checks
from algebranets.nn.weights import own_class
from algebranets.pruning.criteria import CRITERIA
from algebranets.pruning.schedule import Schedule
from algebranets.pruning.weights import Weight, prunable, weights

#: The units that are set to zero: whole tuples or single numbers.
UNITS = ("tuple", "component")
#: The scope in which units are ranked: each weight by itself, or all weights of the model together.
SCOPES = ("layer", "global")


class Mask(nn.Module):
    """A parametrization of a weight that sets some of its numbers to zero.

    Args:
        weight: The weight.
        regrow: Whether gradients pass through the mask, so that masked numbers keep learning.
    """

    #: True where the weight is kept.
    kept: Tensor

    def __init__(self, weight: Tensor, regrow: bool) -> None:
        super().__init__()
        self.regrow = regrow
        self.register_buffer("kept", torch.ones_like(weight, dtype=torch.bool))

    def forward(self, weight: Tensor) -> Tensor:
        masked = torch.where(_placed_like(weight, self.kept), weight, 0)
        return weight + (masked - weight).detach() if self.regrow else masked

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Return the parameter for a value that is assigned to the weight: the value itself. The mask stays."""
        return weight


class Pruner:
    """Sets the smallest tuples of a model's weights to zero while the model trains, and keeps them zero.

    Call `step` after each optimizer step and `finish` at the end.

    Masks are buffers of the model and part of its ``state_dict``. `Pruner.state_dict` holds the number of steps. To
    resume, make the model and the `Pruner` as before, and load both state dicts. If a weight is already parametrized
    (``torch.nn.utils.parametrizations``), its mask is applied last, and the tuples of the computed weight are compared.
    Make the `Pruner` before you copy the model or shard it with ``fully_shard``.

    Args:
        model: The model to prune. Every weight that its layers return from ``algebra_weights()`` can be pruned.
        target: The share of tuples that is zero in the end.
        steps: The length of training in steps. With 0, the target is reached at once.
        begin: The share of training after which pruning begins.
        end: The share of training after which the target is reached.
        every: The number of steps between two updates of the masks.
        schedule: How the share grows: "cubic", "one-shot" (the target at ``begin``) or "constant" (the target from the
            start).
        criterion: The measure of a tuple's size: "norm", "determinant", "smallest-eigenvalue" or "largest-eigenvalue".
        unit: "tuple" to prune whole tuples, or "component" to prune single stored numbers by their absolute values.
        scope: "layer" to prune the smallest units of each weight, or "global" to prune the smallest of the whole model.
        regrow: Whether pruned tuples keep learning, and come back when they become larger than kept tuples (Lin et al.,
            2020).
        layers: The weights to prune: a pattern of paths, such as "stage2.*", or a list from `pruning.weights`. By
            default, all weights but those of the first convolution and the last linear layer are pruned.

    >>> import algebranets as an
    >>> model = an.nn.Sequential(*(an.nn.Linear(16, 16, algebra=an.H) for _ in range(3)))
    >>> pruner = Pruner(model, target=0.75, steps=1000)
    >>> for _ in range(1000):  # call it after each optimizer step
    ...     pruner.step()
    >>> pruner.sparsity
    0.75
    >>> pruner.finish()  # plain weights again, with zeros
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
            checks.one_of(name, value, known)
        self.weights = prunable(model, layers) if isinstance(layers, str) else list(layers)
        if not self.weights:
            raise ValueError("layers must hold some weights of the model, from `pruning.weights`; got none.")
        self.criterion, self.unit, self.scope, self.regrow = criterion, unit, scope, regrow
        self._check_criterion()
        self._check_weights()
        self._check_target()
        self.count = 0
        masks = [Mask(weight.stored, regrow) for weight in self.weights]
        for weight, mask in zip(self.weights, masks, strict=True):
            own_class(weight.layer)
            parametrize.register_parametrization(weight.layer, weight.name, mask)
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
                    f"zero, and {self.criterion} does not measure their size."
                )

    def _check_weights(self) -> None:
        """Check all weights before any of them gets a mask, so that an error leaves the model as it was."""
        if len({(id(weight.layer), weight.name) for weight in self.weights}) < len(self.weights):
            raise ValueError("layers must hold each weight once; got one of them twice.")
        for weight in self.weights:
            if not (weight.name in weight.layer._parameters or parametrize.is_parametrized(weight.layer, weight.name)):
                raise ValueError(
                    f"{weight.path} must be a parameter to be pruned, but a hook computes it in each forward, as with "
                    "torch.nn.utils.weight_norm, spectral_norm and prune: use the norms of algebranets.nn.utils, or "
                    "remove the hook."
                )
            if _masks(weight):
                raise ValueError(f"{weight.path} has the mask of another Pruner: finish() that one first.")
            if _is_sharded(weight.stored):
                raise ValueError(f"{weight.path} is sharded already: make the Pruner before fully_shard.")
            if self.schedule.due(0):
                _check_finite(weight, weight.stored)

    def _check_target(self) -> None:
        """Raise an error if the target is less than half a tuple of every weight, so that nothing would be pruned."""
        sizes = [
            weight.stored.numel() // (weight.algebra.dim if self.unit == "tuple" else 1) for weight in self.weights
        ]
        most, target = sum(sizes) if self.scope == "global" else max(sizes), self.schedule.target
        if not round(target * most):
            where = "the model's weights have" if self.scope == "global" else "the largest weight has"
            raise ValueError(
                f"target={target:g} would prune nothing: {where} {most} {self.unit}s, and {target:g} of them rounds to "
                f"0. The target must be larger than {0.5 / most:.3g}, or the layers must be larger."
            )

    def step(self) -> None:
        """Count one training step, and update the masks if the schedule says so. Call it after each optimizer step."""
        self.count += 1
        self.at(self.count)

    def at(self, step: int) -> None:
        """Set the number of training steps, and update the masks if the schedule says so.

        Args:
            step: The number of training steps so far.
        """
        self.count = step
        if self.schedule.due(step):
            self.prune(self.schedule.share(step))

    @torch.no_grad()
    def prune(self, share: float) -> None:
        """Set the smallest tuples to zero, regardless of the schedule.

        Args:
            share: The share of all tuples that is zero afterwards, including those that are zero already.
        """
        sizes = [self._sizes(weight) for weight in self.weights]
        if self.scope == "global":
            kept = _largest(torch.cat([size.flatten() for size in sizes]), share)
            parts = kept.split([size.numel() for size in sizes])
        else:
            parts = [_largest(size.flatten(), share) for size in sizes]
        for weight, size, part in zip(self.weights, sizes, parts, strict=True):
            kept = _mask(weight).kept
            mask = part.view_as(size).expand(weight.algebra.dim, *size.shape[-kept.dim() :])
            kept.copy_(weight.from_stored_tuples(mask))

    def _sizes(self, weight: Weight) -> Tensor:
        """The size of each tuple or component. Pruned ones that must not come back have size -1."""
        whole = _unmasked(weight)
        _check_finite(weight, whole)
        whole = whole.to(torch.promote_types(whole.dtype, torch.float32))
        if self.unit == "component":
            sizes = weight.stored_tuples(whole).abs()
        else:
            sizes = CRITERIA[self.criterion](weight.tuples(whole), weight.algebra)
        if self.regrow:
            return sizes
        kept = weight.stored_tuples(_mask(weight).kept)
        return torch.where(kept if self.unit == "component" else kept.any(0), sizes, -1)

    @property
    def sparsity(self) -> float:
        """The share of the pruned weights' numbers that is zero. With sharded weights, all ranks must read it."""
        zeros = [~_mask(weight).kept | (_unmasked(weight) == 0) for weight in self.weights]
        return sum(int(part.sum()) for part in zeros) / sum(part.numel() for part in zeros)

    def state_dict(self) -> dict[str, Any]:
        """The number of steps. The masks are in the model's ``state_dict``."""
        return {"step": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue after the step at which ``state`` was taken. The masks come from the model's state dict."""
        self.count = state["step"]

    def finish(self, model: nn.Module | None = None) -> None:
        """Remove the masks. The weights become plain parameters again, with zeros where they were masked.

        Other parametrizations of these weights are removed too.

        Args:
            model: If given, remove the masks of this deep copy of the model instead, such as an average of its weights.
        """
        masked = [weight for weight in (self.weights if model is None else weights(model)) if _masks(weight)]
        if not masked:
            raise ValueError("the model must have the masks of a Pruner to be finished; it has none.")
        masks = [mask.kept for weight in masked for mask in _masks(weight)]
        if not any(kept.is_meta or not kept.all() for kept in masks):
            if model is not None:
                raise ValueError(
                    "nothing was pruned in this copy: copy the buffers of the pruned model too, as AveragedModel does, "
                    "or copy the model after it was pruned."
                )
            raise ValueError(
                f"nothing was pruned after {self.count} of {self.schedule.steps} steps: call step() after each "
                "optimizer step, or prune(share) to prune at once, and then finish()."
            )
        for weight in masked:
            if any(_is_sharded(original) for original in _chain(weight).parameters()):
                raise ValueError(
                    f"{weight.path} is sharded, and masks can only be removed from whole weights: load the full "
                    "state_dict into a model that is not sharded and has a Pruner of its own, and finish() that one."
                )
        for weight in masked:
            own_class(weight.layer)
            parametrize.remove_parametrizations(weight.layer, weight.name, leave_parametrized=True)


def _largest(sizes: Tensor, share: float) -> Tensor:
    """Return a mask that is False for the given share of ``sizes``, the smallest ones, and True elsewhere.

    Among equal sizes, the first ones are False.
    """
    kept = torch.ones_like(sizes, dtype=torch.bool)
    kept[sizes.argsort(stable=True)[: round(share * sizes.numel())]] = False
    return kept


def _chain(weight: Weight) -> Any:
    """The parametrizations of the weight, in order."""
    return weight.layer.parametrizations[weight.name]  # type: ignore[index]


def _masks(weight: Weight) -> list[Mask]:
    """The masks among the parametrizations of the weight: one or none."""
    if not parametrize.is_parametrized(weight.layer, weight.name):
        return []
    return [stage for stage in _chain(weight) if isinstance(stage, Mask)]


def _mask(weight: Weight) -> Mask:
    (mask,) = _masks(weight)
    return mask


@torch.no_grad()
def _unmasked(weight: Weight) -> Tensor:
    """The unsharded weight before its mask: the parameter, or the result of earlier parametrizations."""
    chain, mask = _chain(weight), _mask(weight)
    names = ["original"] if chain.is_tensor else [f"original{i}" for i in range(chain.ntensors)]
    originals = [chain._parameters[name] for name in names if name in chain._parameters]
    values = tuple(original.full_tensor() if _is_sharded(original) else original for original in originals)
    training = chain.training
    try:
        chain.eval()  # in training mode, a spectral norm changes its state at each read
        for stage in itertools.takewhile(lambda stage: stage is not mask, chain):
            values = (stage(*values),)
    finally:
        chain.train(training)
    if not values or values[0].shape != mask.kept.shape:
        raise ValueError(
            f"{weight.path} must be a whole tensor to be pruned, but it is part of another one: use "
            "torch.distributed.fsdp.fully_shard instead of FullyShardedDataParallel."
        )
    return values[0]


def _check_finite(weight: Weight, value: Tensor) -> None:
    """Raise an error for NaN and infinity: their sizes are meaningless, and computing eigenvalues can crash."""
    if not value.is_meta and not value.isfinite().all():
        raise ValueError(f"{weight.path} must be finite to be pruned; it holds NaN or infinity: training has diverged.")


def _is_sharded(tensor: Tensor) -> bool:
    """Whether the tensor is a DTensor, as parameters are after fully_shard."""
    return hasattr(tensor, "placements")


def _placed_like(weight: Tensor, mask: Tensor) -> Tensor:
    """The mask, sharded like the weight. Weights are whole during a forward and may be sharded otherwise."""
    if not _is_sharded(weight):
        return mask
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(mask, weight.device_mesh, weight.placements, src_data_rank=None)  # type: ignore[attr-defined]
