"""Initialisers for weights over an algebra. Fans count the real products that reach (or leave) one component.

Over R they are `torch.nn.init`'s; for every algebra they keep the variance of activations as those do for real layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from algebranets import product
from algebranets.algebra import Algebra


@contextmanager
def new_value(module: nn.Module, name: str) -> Iterator[Tensor]:
    """A tensor to write the new value of a module's parameter into: itself, or what is then assigned to it.

    >>> from algebranets import H, nn
    >>> layer = torch.nn.utils.parametrizations.weight_norm(nn.Linear(8, 12, algebra=H))
    >>> with new_value(layer, "weight") as weight:  # layer.weight is computed anew whenever one asks for it
    ...     _ = xavier_uniform_(weight, H)
    """
    if name in module._parameters:
        yield getattr(module, name)
    elif parametrize.is_parametrized(module, name):
        fresh = torch.empty_like(getattr(module, name), requires_grad=False)
        yield fresh
        try:
            setattr(module, name, fresh)
        except (RuntimeError, NotImplementedError, ValueError) as error:
            raise ValueError(
                f"{name} is parametrized by {_parametrizations(module, name)}, to which this value cannot be assigned: "
                f"they must have a right_inverse that takes it ({error})."
            ) from None
    else:
        raise ValueError(
            f"{name} must be a parameter to be assigned to, but a hook computes it in each forward, as "
            "torch.nn.utils.weight_norm and spectral_norm have it: take those of torch.nn.utils.parametrizations."
        )


def _parametrizations(module: Any, name: str) -> str:
    return ", ".join(type(stage).__name__ for stage in module.parametrizations[name])


def fans(weight: Tensor, algebra: Algebra, stacks: int = 1) -> tuple[float, float]:
    """``(fan_in, fan_out)``: how many products are summed in one output component, and how many use one input's.

    >>> from algebranets import H, nn
    >>> fans(nn.Linear(8, 12, algebra=H).weight, H)  # 2 tuples in, 3 out, 4 products each
    (8.0, 12.0)
    """
    first, second = product.num_tuples(weight, algebra, stacks)
    per_tuple = math.prod(weight.shape[2:]) * algebra.multiplies / algebra.dim
    return second * per_tuple, first * per_tuple


def xavier_uniform_(weight: Tensor, algebra: Algebra, gain: float = 1.0, stacks: int = 1) -> Tensor:
    """Glorot's uniform initialisation, each component independently: the default of every layer here."""
    return _uniform(weight, gain * math.sqrt(2 / sum(fans(weight, algebra, stacks))))


def xavier_normal_(weight: Tensor, algebra: Algebra, gain: float = 1.0, stacks: int = 1) -> Tensor:
    """Glorot's normal initialisation, each component independently."""
    return _normal(weight, gain * math.sqrt(2 / sum(fans(weight, algebra, stacks))))


def kaiming_uniform_(weight: Tensor, algebra: Algebra, nonlinearity: Any = "relu", stacks: int = 1) -> Tensor:
    """He's uniform initialisation, each component independently."""
    return _uniform(weight, _he(weight, algebra, nonlinearity, stacks))


def kaiming_normal_(weight: Tensor, algebra: Algebra, nonlinearity: Any = "relu", stacks: int = 1) -> Tensor:
    """He's normal initialisation, each component independently."""
    return _normal(weight, _he(weight, algebra, nonlinearity, stacks))


def polar_(
    weight: Tensor, algebra: Algebra, criterion: str = "xavier", transposed: bool = False, stacks: int = 1
) -> Tensor:
    """Tuples of random size and direction: r (cos t 1 + sin t u), for any algebra with a unit.

    r is chi-distributed, t uniform, u a random direction across the unit. Over C it is the initialisation of Trabelsi
    et al. (2018), over H that of Gaudet & Maida (2018); ``criterion`` "xavier" or "kaiming" sets the variance.
    """
    if algebra.unit is None:
        raise ValueError(f"polar_ needs an algebra with a unit, which {algebra.name} has not; use xavier_uniform_.")
    fan_in, fan_out = fans(weight, algebra, stacks)
    variances = {"xavier": 2 / (fan_in + fan_out), "kaiming": 2 / fan_in}
    if criterion not in variances:
        raise ValueError(f"criterion must be 'xavier' or 'kaiming'; got {criterion!r}.")
    _check_writable(weight)
    with torch.no_grad():
        like = product.weight_tuples(weight, algebra, transposed, stacks)
        radius = torch.randn_like(like).norm(dim=0) * math.sqrt(variances[criterion])
        unit = like.new_tensor([float(u) for u in algebra.unit])
        unit = (unit / unit.norm()).reshape(-1, *[1] * (like.dim() - 1))
        across = torch.randn_like(like)
        across = across - (across * unit).sum(0) * unit
        # In R nothing lies across the unit: a direction is a sign.
        angle = torch.rand_like(radius) * 2 * math.pi if algebra.dim > 1 else (torch.rand_like(radius) < 0.5) * math.pi
        direction = angle.cos() * unit + angle.sin() * torch.nn.functional.normalize(across, dim=0)
        return weight.copy_(product.weight_from_tuples(radius * direction, algebra, transposed, stacks))


def _he(weight: Tensor, algebra: Algebra, nonlinearity: Any, stacks: int) -> float:
    return torch.nn.init.calculate_gain(nonlinearity) / math.sqrt(fans(weight, algebra, stacks)[0])


def _normal(weight: Tensor, std: float) -> Tensor:
    _check_writable(weight)
    return torch.nn.init.normal_(weight, std=std)


def _uniform(weight: Tensor, std: float) -> Tensor:
    _check_writable(weight)
    return torch.nn.init.uniform_(weight, -std * math.sqrt(3), std * math.sqrt(3))


def _check_writable(weight: Tensor) -> None:
    """What is written into the result of a computation is lost; parts of a parameter are none."""
    whole = weight._base if weight._is_view() else weight
    if whole is not None and whole.grad_fn is not None:
        raise ValueError(
            "weight must be a parameter or a plain tensor to be initialized; got the result of a computation, which a "
            "parametrized layer's weight is: take `with init.new_value(layer, 'weight') as weight`."
        )
