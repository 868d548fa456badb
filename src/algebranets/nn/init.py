"""Initializers for weights over an algebra.

Fans count real products, so activations keep their variance over every algebra, as in real layers (see `fans`). Over R,
Glorot's and He's initializers are those of `torch.nn.init`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from algebranets import checks, product
from algebranets.algebra import Algebra


@contextmanager
def new_value(module: nn.Module, name: str) -> Iterator[Tensor]:
    """Yield a tensor into which to write the new value of a module's parameter, parametrized or not.

    The tensor is the parameter itself. For a parametrized one it is a new tensor, which is assigned to the parameter
    afterwards.

    Args:
        module: The module that has the parameter.
        name: The name of the parameter.

    >>> from algebranets import H, nn
    >>> layer = torch.nn.utils.parametrizations.weight_norm(nn.Linear(8, 12, algebra=H))
    >>> with new_value(layer, "weight") as weight:  # layer.weight is computed each time it is read
    ...     _ = xavier_uniform_(weight, H)
    """
    if name in module._parameters:
        yield getattr(module, name)
    elif parametrize.is_parametrized(module, name):
        fresh = torch.empty_like(getattr(module, name), requires_grad=False)
        yield fresh
        try:
            setattr(module, name, fresh)
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"{name} is parametrized by {_parametrizations(module, name)}, which does not take this value: each "
                f"parametrization must have a right_inverse that takes it ({error})."
            ) from None
    else:
        raise ValueError(
            f"{name} must be a parameter to be assigned to, but a hook computes it in each forward, as with "
            "torch.nn.utils.weight_norm and spectral_norm: use those of torch.nn.utils.parametrizations."
        )


def _parametrizations(module: Any, name: str) -> str:
    return ", ".join(type(stage).__name__ for stage in module.parametrizations[name])


def fans(weight: Tensor, algebra: Algebra, stacks: int = 1) -> tuple[float, float]:
    """Return the fan-in and the fan-out of a weight, counted in real products.

    The fan-in is the number of products that are summed in one component of the output. The fan-out is the number of
    products that use one component of the input.

    Args:
        weight: The weight, as a layer stores it.
        algebra: The algebra.
        stacks: How many weights are stacked along the first axis, such as the gates of a GRU.

    Returns:
        ``(fan_in, fan_out)``.

    >>> from algebranets import H, nn
    >>> fans(nn.Linear(8, 12, algebra=H).weight, H)  # 2 tuples in, 3 out, 4 products each
    (8.0, 12.0)
    """
    first, second = product.num_tuples(weight, algebra, stacks)
    per_tuple = math.prod(weight.shape[2:]) * algebra.multiplies / algebra.dim
    return second * per_tuple, first * per_tuple


def xavier_uniform_(weight: Tensor, algebra: Algebra, gain: float = 1.0, stacks: int = 1) -> Tensor:
    """Initialize a weight by Glorot's uniform rule, each component independently. This is the layers' default.

    Args:
        weight: The weight, as a layer stores it.
        algebra: The algebra.
        gain: A factor for the standard deviation.
        stacks: How many weights are stacked along the first axis, such as the gates of a GRU.

    >>> from algebranets import H, nn
    >>> layer = nn.Linear(8, 12, algebra=H)
    >>> xavier_uniform_(layer.weight, H, gain=2.0) is layer.weight
    True
    """
    return _uniform(weight, gain * math.sqrt(2 / sum(fans(weight, algebra, stacks))))


def xavier_normal_(weight: Tensor, algebra: Algebra, gain: float = 1.0, stacks: int = 1) -> Tensor:
    """Initialize a weight by Glorot's normal rule, each component independently.

    Args:
        weight: The weight, as a layer stores it.
        algebra: The algebra.
        gain: A factor for the standard deviation.
        stacks: How many weights are stacked along the first axis, such as the gates of a GRU.

    >>> from algebranets import H, nn
    >>> layer = nn.Linear(8, 12, algebra=H)
    >>> xavier_normal_(layer.weight, H) is layer.weight
    True
    """
    return _normal(weight, gain * math.sqrt(2 / sum(fans(weight, algebra, stacks))))


def kaiming_uniform_(weight: Tensor, algebra: Algebra, nonlinearity: Any = "relu", stacks: int = 1) -> Tensor:
    """Initialize a weight by He's uniform rule, each component independently.

    Args:
        weight: The weight, as a layer stores it.
        algebra: The algebra.
        nonlinearity: The name of the activation that follows, for `torch.nn.init.calculate_gain`.
        stacks: How many weights are stacked along the first axis, such as the gates of a GRU.

    >>> from algebranets import H, nn
    >>> layer = nn.Linear(8, 12, algebra=H)
    >>> kaiming_uniform_(layer.weight, H) is layer.weight
    True
    """
    return _uniform(weight, _he(weight, algebra, nonlinearity, stacks))


def kaiming_normal_(weight: Tensor, algebra: Algebra, nonlinearity: Any = "relu", stacks: int = 1) -> Tensor:
    """Initialize a weight by He's normal rule, each component independently.

    Args:
        weight: The weight, as a layer stores it.
        algebra: The algebra.
        nonlinearity: The name of the activation that follows, for `torch.nn.init.calculate_gain`.
        stacks: How many weights are stacked along the first axis, such as the gates of a GRU.

    >>> from algebranets import H, nn
    >>> layer = nn.Linear(8, 12, algebra=H)
    >>> kaiming_normal_(layer.weight, H) is layer.weight
    True
    """
    return _normal(weight, _he(weight, algebra, nonlinearity, stacks))


def polar_(
    weight: Tensor, algebra: Algebra, criterion: str = "xavier", transposed: bool = False, stacks: int = 1
) -> Tensor:
    """Initialize a weight with tuples of random size and direction, r (cos t 1 + sin t u).

    r is chi-distributed, t is uniform, and u is a random direction orthogonal to the unit 1. Over C this is
    the initialization of Trabelsi et al. (2018), and over H that of Gaudet and Maida (2018).

    Args:
        weight: The weight, as a layer stores it.
        algebra: The algebra, which must have a unit.
        criterion: The rule for the variance: "xavier" for Glorot's, "kaiming" for He's.
        transposed: Whether the weight's axes are (in, out), as in a transposed convolution.
        stacks: How many weights are stacked along the first axis, such as the gates of a GRU.

    >>> from algebranets import H, nn
    >>> layer = nn.Linear(8, 12, algebra=H)
    >>> polar_(layer.weight, H, criterion="kaiming") is layer.weight
    True
    """
    if algebra.unit is None:
        raise ValueError(
            f"polar_ needs an algebra with a unit, which {algebra.name} does not have; use xavier_uniform_."
        )
    fan_in, fan_out = fans(weight, algebra, stacks)
    variances = {"xavier": 2 / (fan_in + fan_out), "kaiming": 2 / fan_in}
    checks.one_of("criterion", criterion, variances)
    _check_writable(weight)
    with torch.no_grad():
        like = product.weight_tuples(weight, algebra, transposed, stacks)
        radius = torch.randn_like(like).norm(dim=0) * math.sqrt(variances[criterion])
        unit = like.new_tensor([float(u) for u in algebra.unit])
        unit = (unit / unit.norm()).reshape(-1, *[1] * (like.dim() - 1))
        across = torch.randn_like(like)
        across = across - (across * unit).sum(0) * unit
        # In R nothing is orthogonal to the unit: a direction is a sign.
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
    """Raise an error if ``weight`` is the result of a computation, because values written to it would be lost.

    A view of a parameter is allowed.
    """
    whole = weight._base if weight._is_view() else weight
    if whole is not None and whole.grad_fn is not None:
        raise ValueError(
            "weight must be a parameter or a plain tensor to be initialized; got the result of a computation, such as "
            "the weight of a parametrized layer: use `with init.new_value(layer, 'weight') as weight`."
        )
