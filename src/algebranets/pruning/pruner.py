"""Masks that grow while a network trains."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from algebranets.pruning.criteria import CRITERIA
from algebranets.pruning.schedule import Schedule
from algebranets.pruning.weights import Weight, prunable, weights

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
        masked = torch.where(_placed_like(weight, self.kept), weight, 0)
        return weight + (masked - weight).detach() if self.regrow else masked

    def right_inverse(self, weight: Tensor) -> Tensor:
        """What is assigned to a masked weight reaches the parameter; the mask stays in force."""
        return weight


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

    A weight that is parametrized already (``torch.nn.utils.parametrizations``) gets its mask after that, and is pruned
    by the size of what is computed. Make the `Pruner` before the model is copied, or sharded by ``fully_shard``.
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
        self._check_weights()
        self.count = 0
        masks = [Kept(weight.stored, regrow) for weight in self.weights]
        for weight, mask in zip(self.weights, masks, strict=True):
            _own_class(weight.layer)
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
                    f"zero, so that {self.criterion} is no measure of them."
                )

    def _check_weights(self) -> None:
        """Before any of them gets a mask, so that a model is either pruned or as it was."""
        if len({(id(weight.layer), weight.name) for weight in self.weights}) < len(self.weights):
            raise ValueError("layers must hold each weight once; got one of them twice.")
        for weight in self.weights:
            if not (weight.name in weight.layer._parameters or parametrize.is_parametrized(weight.layer, weight.name)):
                raise ValueError(
                    f"{weight.path} must be a parameter to be pruned, but a hook computes it in each forward, as "
                    "torch.nn.utils.weight_norm, spectral_norm and prune have it: take those of "
                    "torch.nn.utils.parametrizations, or remove the hook."
                )
            if _masks(weight):
                raise ValueError(f"{weight.path} has the mask of another Pruner: finish() that one first.")
            if _is_sharded(weight.stored):
                raise ValueError(f"{weight.path} is sharded already: make the Pruner before fully_shard.")
            if self.schedule.due(0):
                _check_finite(weight, weight.stored)

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
            kept = _mask(weight).kept
            mask = part.view_as(size).expand(weight.algebra.dim, *size.shape[-kept.dim() :])
            kept.copy_(weight.from_tuples(mask))

    def _sizes(self, weight: Weight) -> Tensor:
        """Of each tuple, or of each component; what must not come back is smaller than anything."""
        whole = _unmasked(weight)
        _check_finite(weight, whole)
        tuples = weight.tuples(whole.to(torch.promote_types(whole.dtype, torch.float32)))
        sizes = tuples.abs() if self.unit == "component" else CRITERIA[self.criterion](tuples, weight.algebra)
        if self.regrow:
            return sizes
        kept = weight.tuples(_mask(weight).kept)
        return torch.where(kept if self.unit == "component" else kept.any(0), sizes, -1)

    @property
    def sparsity(self) -> float:
        """The share of the pruned weights' numbers that is zero; every process must ask where weights are sharded."""
        zeros = [~_mask(weight).kept | (_unmasked(weight) == 0) for weight in self.weights]
        return sum(int(part.sum()) for part in zeros) / sum(part.numel() for part in zeros)

    def state_dict(self) -> dict[str, Any]:
        """What the model's own does not hold."""
        return {"step": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on behind the step at which ``state`` was taken; the model's state holds the masks."""
        self.count = state["step"]

    def finish(self, model: nn.Module | None = None) -> None:
        """Take the masks away; what they hid is zero for good. Other parametrizations of these weights end too.

        With ``model``, a deep copy of the pruned model such as an average of its weights, do so there instead.
        """
        masked = [weight for weight in (self.weights if model is None else weights(model)) if _masks(weight)]
        if not masked:
            raise ValueError("the model must have the masks of a Pruner to be finished; it has none, or no longer.")
        for weight in masked:
            if any(_is_sharded(original) for original in _chain(weight).parameters()):
                raise ValueError(
                    f"{weight.path} is sharded, and masks can only be taken away from whole weights: load the full "
                    "state_dict into a model that is not sharded and has a Pruner of its own, and finish() that one."
                )
        for weight in masked:
            _own_class(weight.layer)
            parametrize.remove_parametrizations(weight.layer, weight.name, leave_parametrized=True)


def _largest(sizes: Tensor, share: float) -> Tensor:
    """True for all but this share of the smallest; where several are alike, the first of them go."""
    kept = torch.ones_like(sizes, dtype=torch.bool)
    kept[sizes.argsort(stable=True)[: round(share * sizes.numel())]] = False
    return kept


def _chain(weight: Weight) -> Any:
    """All that parametrizes the weight, in order."""
    return weight.layer.parametrizations[weight.name]  # type: ignore[index]


def _masks(weight: Weight) -> list[Kept]:
    """Those of a `Pruner` among what parametrizes the weight: one, or none."""
    if not parametrize.is_parametrized(weight.layer, weight.name):
        return []
    return [stage for stage in _chain(weight) if isinstance(stage, Kept)]


def _mask(weight: Weight) -> Kept:
    (mask,) = _masks(weight)
    return mask


@torch.no_grad()
def _unmasked(weight: Weight) -> Tensor:
    """The whole weight before its mask: the parameter itself, or what was made of it by what was registered earlier."""
    chain, mask = _chain(weight), _mask(weight)
    names = ["original"] if chain.is_tensor else [f"original{i}" for i in range(chain.ntensors)]
    originals = [chain._parameters[name] for name in names if name in chain._parameters]
    values = tuple(original.full_tensor() if _is_sharded(original) else original for original in originals)
    training = chain.training
    try:
        chain.eval()  # in training, a spectral norm changes its state whenever one looks
        for stage in itertools.takewhile(lambda stage: stage is not mask, chain):
            values = (stage(*values),)
    finally:
        chain.train(training)
    if not values or values[0].shape != mask.kept.shape:
        raise ValueError(
            f"{weight.path} must be whole to be pruned, but it is a part of something else: take "
            "torch.distributed.fsdp.fully_shard in place of FullyShardedDataParallel."
        )
    return values[0]


def _check_finite(weight: Weight, value: Tensor) -> None:
    """Sizes of what is no number mean nothing, and eigenvalues of it may end the process."""
    if not value.is_meta and not value.isfinite().all():
        raise ValueError(f"{weight.path} must be finite to be pruned; it holds NaN or infinity: training has diverged.")


def _own_class(module: nn.Module) -> None:
    """Before what parametrizes ``module`` changes: torch changes its class, which deep copies of it have too."""
    if parametrize.is_parametrized(module):
        shared = type(module)
        module.__class__ = type(shared.__name__, shared.__bases__, dict(vars(shared)))


def _is_sharded(tensor: Tensor) -> bool:
    """Whether it is a DTensor, as fully_shard makes parameters."""
    return hasattr(tensor, "placements")


def _placed_like(weight: Tensor, mask: Tensor) -> Tensor:
    """The mask as the weight is placed: within a forward weights are whole, outside of it they may be sharded."""
    if not _is_sharded(weight):
        return mask
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(mask, weight.device_mesh, weight.placements, src_data_rank=None)  # type: ignore[attr-defined]
