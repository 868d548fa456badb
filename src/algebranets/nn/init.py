"""torch.nn.init over an algebra: initializers with torch's arguments and the keyword ``algebra``.

Fans count real products, so activations keep their variance over every algebra, as in real layers (see `fans`). Over R,
Glorot's and He's initializers are those of `torch.nn.init`. Initializers that treat every number alike, such as
`normal_` and `zeros_`, are torch's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.init import calculate_gain, constant_, normal_, ones_, trunc_normal_, uniform_, zeros_
from torch.nn.utils import parametrize

from algebranets import algebra as algebras
from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn.layer import REQUIRED, resolve
from algebranets.nn.refused import unknown_name

__all__ = [
    "calculate_gain",
    "constant_",
    "fans",
    "kaiming_normal_",
    "kaiming_uniform_",
    "new_value",
    "normal_",
    "ones_",
    "polar_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]

_TUPLES = "Assign these tuples to layer.weight_tuples"

#: Why each of these initializers of torch.nn.init is refused, and what to use instead.
REFUSED = {
    "eye_": f"the identity over an algebra has the algebra's unit on its diagonal, not the number 1. {_TUPLES}",
    "dirac_": "the identity over an algebra has the algebra's unit at the kernel's center, not the number 1. "
    f"{_TUPLES}",
    "orthogonal_": "a stored weight with orthogonal rows is in general not an orthogonal map over an algebra. Use "
    "xavier_uniform_ or polar_, or assign tuples of your own to layer.weight_tuples",
    "sparse_": "it sets single numbers to zero, not whole tuples. Use algebranets.pruning.Pruner",
}
REFUSED |= {name[:-1]: reason for name, reason in REFUSED.items()}  # torch's deprecated names have no underscore


@contextmanager
def new_value(module: nn.Module, name: str) -> Iterator[Tensor]:
    """Yield a tensor into which to write the new value of a module's parameter, parametrized or not.

    The tensor is the parameter itself. For a parametrized one it is a new tensor, which is assigned to the parameter
    afterwards.

    Args:
        module: The module that has the parameter.
        name: The name of the parameter.

    >>> from algebranets import H, nn
    >>> layer = nn.utils.weight_norm(nn.Linear(8, 12, algebra=H))
    >>> with new_value(layer, "weight") as weight:  # layer.weight is computed each time it is read
    ...     _ = xavier_uniform_(weight, algebra=H)
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
            "torch.nn.utils.weight_norm and spectral_norm: use those of algebranets.nn.utils."
        )


def _parametrizations(module: Any, name: str) -> str:
    return ", ".join(type(stage).__name__ for stage in module.parametrizations[name])


def fans(weight: Tensor, algebra: Algebra | str, stacks: int = 1) -> tuple[float, float]:
    """Return the fan-in and the fan-out of a weight, counted in real products.

    The fan-in is the number of products that are summed in one component of the output. The fan-out is the number of
    products that use one component of the input.

    Args:
        weight: The weight, as a layer stores it.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        stacks: How many weights are stacked along the first axis, such as the gates of a GRU.

    Returns:
        ``(fan_in, fan_out)``.

    >>> from algebranets import H, nn
    >>> fans(nn.Linear(8, 12, algebra=H).weight, H)  # 2 tuples in, 3 out, 4 products each
    (8.0, 12.0)
    """
    algebra = algebras.get(algebra)
    if weight.dim() < 2:
        raise ValueError(
            f"a weight over {algebra.name} must have at least 2 axes for its fans; got shape {tuple(weight.shape)}. "
            "Use zeros_, normal_ or uniform_ for a bias."
        )
    first, second = product.num_tuples(weight, algebra, stacks)
    per_tuple = math.prod(weight.shape[2:]) * algebra.multiplies / algebra.dim
    return second * per_tuple, first * per_tuple


def xavier_uniform_(
    tensor: Tensor,
    gain: float = 1.0,
    generator: torch.Generator | None = None,
    *,
    algebra: Algebra | str = REQUIRED,
    stacks: int = 1,
) -> Tensor:
    """Initialize a weight by Glorot's uniform rule, each component independently. This is the layers' default.

    Args:
        tensor: The weight, as a layer stores it.
        gain: A factor for the standard deviation.
        generator: The random number generator, by default torch's.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        stacks: How many weights are stacked along the first axis, such as the gates of a GRU.

    >>> from algebranets import nn
    >>> layer = nn.Linear(8, 12, algebra="H")
    >>> xavier_uniform_(layer.weight, gain=2.0, algebra="H") is layer.weight
    True
    """
    over = resolve(algebra, "xavier_uniform_", "init.")
    return _uniform(tensor, gain * _glorot(tensor, over, stacks), generator, over, stacks)


def xavier_normal_(
    tensor: Tensor,
    gain: float = 1.0,
    generator: torch.Generator | None = None,
    *,
    algebra: Algebra | str = REQUIRED,
    stacks: int = 1,
) -> Tensor:
    """Initialize a weight by Glorot's normal rule, each component independently.

    Args:
        tensor: The weight, as a layer stores it.
        gain: A factor for the standard deviation.
        generator: The random number generator, by default torch's.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        stacks: How many weights are stacked along the first axis, such as the gates of a GRU.

    >>> from algebranets import nn
    >>> layer = nn.Linear(8, 12, algebra="H")
    >>> xavier_normal_(layer.weight, algebra="H") is layer.weight
    True
    """
    over = resolve(algebra, "xavier_normal_", "init.")
    return _normal(tensor, gain * _glorot(tensor, over, stacks), generator, over, stacks)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: Any = "leaky_relu",
    generator: torch.Generator | None = None,
    *,
    algebra: Algebra | str = REQUIRED,
    stacks: int = 1,
) -> Tensor:
    """Initialize a weight by He's uniform rule, each component independently.

    Args:
        tensor: The weight, as a layer stores it.
        a: The negative slope of the activation that follows, if it is a leaky ReLU.
        mode: "fan_in" to keep the variance in the forward pass, "fan_out" to keep it in the backward pass.
        nonlinearity: The name of the activation that follows, for `torch.nn.init.calculate_gain`.
        generator: The random number generator, by default torch's.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        stacks: How many weights are stacked along the first axis, such as the gates of a GRU.

    >>> from algebranets import nn
    >>> layer = nn.Linear(8, 12, algebra="H")
    >>> kaiming_uniform_(layer.weight, nonlinearity="relu", algebra="H") is layer.weight
    True
    """
    over = resolve(algebra, "kaiming_uniform_", "init.")
    return _uniform(tensor, _he(tensor, a, mode, nonlinearity, over, stacks), generator, over, stacks)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: Any = "leaky_relu",
    generator: torch.Generator | None = None,
    *,
    algebra: Algebra | str = REQUIRED,
    stacks: int = 1,
) -> Tensor:
    """Initialize a weight by He's normal rule, each component independently.

    Args:
        tensor: The weight, as a layer stores it.
        a: The negative slope of the activation that follows, if it is a leaky ReLU.
        mode: "fan_in" to keep the variance in the forward pass, "fan_out" to keep it in the backward pass.
        nonlinearity: The name of the activation that follows, for `torch.nn.init.calculate_gain`.
        generator: The random number generator, by default torch's.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        stacks: How many weights are stacked along the first axis, such as the gates of a GRU.

    >>> from algebranets import nn
    >>> layer = nn.Conv2d(8, 12, 3, algebra="H")
    >>> kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu", algebra="H") is layer.weight
    True
    """
    over = resolve(algebra, "kaiming_normal_", "init.")
    return _normal(tensor, _he(tensor, a, mode, nonlinearity, over, stacks), generator, over, stacks)


def polar_(
    weight: Tensor,
    criterion: str = "xavier",
    *,
    algebra: Algebra | str = REQUIRED,
    transposed: bool = False,
    stacks: int = 1,
) -> Tensor:
    """Initialize a weight with tuples of random size and direction, r (cos t 1 + sin t u).

    r is chi-distributed, t is uniform, and u is a random direction orthogonal to the unit 1. Over C this is
    the initialization of Trabelsi et al. (2018), and over H that of Gaudet and Maida (2018).

    Args:
        weight: The weight, as a layer stores it.
        criterion: The rule for the variance: "xavier" for Glorot's, "kaiming" for He's.
        algebra: The algebra, an `Algebra` or a name such as "M2R". It must have a unit.
        transposed: Whether the weight's axes are (in, out), as in a transposed convolution.
        stacks: How many weights are stacked along the first axis, such as the gates of a GRU.

    >>> from algebranets import nn
    >>> layer = nn.Linear(8, 12, algebra="H")
    >>> polar_(layer.weight, criterion="kaiming", algebra="H") is layer.weight
    True
    """
    algebra = resolve(algebra, "polar_", "init.")
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


def _glorot(tensor: Tensor, algebra: Algebra, stacks: int) -> float:
    return math.sqrt(2 / sum(fans(tensor, algebra, stacks)))


def _he(tensor: Tensor, a: float, mode: str, nonlinearity: Any, algebra: Algebra, stacks: int) -> float:
    fan_in, fan_out = fans(tensor, algebra, stacks)
    fan = {"fan_in": fan_in, "fan_out": fan_out}[checks.one_of("mode", str(mode).lower(), ["fan_in", "fan_out"])]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan or 1)  # an empty weight has a fan of 0


def _normal(tensor: Tensor, std: float, generator: torch.Generator | None, algebra: Algebra, stacks: int) -> Tensor:
    _check_writable(tensor)
    return _in_storage(normal_(tensor, std=std, generator=generator), algebra, stacks)


def _uniform(tensor: Tensor, std: float, generator: torch.Generator | None, algebra: Algebra, stacks: int) -> Tensor:
    _check_writable(tensor)
    return _in_storage(uniform_(tensor, -std * math.sqrt(3), std * math.sqrt(3), generator), algebra, stacks)


def _in_storage(drawn: Tensor, algebra: Algebra, stacks: int) -> Tensor:
    """Take independent numbers in ``drawn`` as components in the basis of the table, and store these in place."""
    if algebra.change is None:
        return drawn
    with torch.no_grad():
        tuples = product.stored_tuples(drawn, algebra, stacks=stacks)
        return drawn.copy_(product.weight_from_tuples(tuples, algebra, stacks=stacks))


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


if not TYPE_CHECKING:  # type checkers know the names above, and report others

    def __getattr__(name: str) -> Any:
        raise unknown_name(__name__, name, __all__, REFUSED)
