"""The norms in `functional`: group norm, instance norm, RMS norm and local response norm for tuples."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from algebranets.algebra import Algebra
from algebranets.nn.functional.arguments import check_groups, check_normalized_shape, check_size, num_tuples_on_axis_1
from algebranets.nn.layer import REQUIRED, resolve
from algebranets.ops.device import sum_dtype


def group_norm(
    input: Float[Tensor, "batch chan *size"],
    num_groups: int,
    weight: Float[Tensor, " tuple"] | None = None,
    bias: Float[Tensor, " chan"] | None = None,
    eps: float = 1e-5,
    *,
    algebra: Algebra | str = REQUIRED,
) -> Float[Tensor, "batch chan *size"]:
    """`torch.nn.functional.group_norm` for tuples: it normalizes groups of whole tuples.

    See `algebranets.nn.GroupNorm` for the definition. Over R it is torch's function.

    Args:
        input: Activations with channels on axis 1.
        num_groups: The number of groups, which must divide the number of tuples.
        weight: A scale for each tuple, or None.
        bias: An offset for each real channel, or None.
        eps: The number added to the variance.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> an.nn.functional.group_norm(torch.randn(2, 24, 5), 3, algebra=an.H).shape
    torch.Size([2, 24, 5])
    """
    over = resolve(algebra, "group_norm", "functional.")
    num_tuples = num_tuples_on_axis_1(input, over)
    check_groups("num_groups", num_groups, num_tuples, over)
    if over.dim == 1:
        return F.group_norm(input, num_groups, weight, bias, eps)
    t = input.unflatten(1, (over.dim, num_groups, -1))
    count = prod(t.shape[3:])
    if count == 0 or (count == 1 and t.shape[0] == 1):
        raise ValueError(
            f"each group must hold more than one {over.name} tuple, as a single tuple is its own mean; got {count} "
            f"in each of num_groups={num_groups} groups of an input of shape {tuple(input.shape)}."
        )
    _, deviation, variance = _statistics(t)
    return _normalize(deviation, variance, weight, bias, eps).to(input.dtype)


def instance_norm(
    input: Float[Tensor, "batch chan *size"],
    running_mean: Float[Tensor, " chan"] | None = None,
    running_var: Float[Tensor, " tuple"] | None = None,
    weight: Float[Tensor, " tuple"] | None = None,
    bias: Float[Tensor, " chan"] | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    algebra: Algebra | str = REQUIRED,
) -> Float[Tensor, "batch chan *size"]:
    """`torch.nn.functional.instance_norm` for tuples: it normalizes each tuple over the positions of a sample.

    See `algebranets.nn.InstanceNorm2d` for the definition.

    Args:
        input: Activations with channels on axis 1 and spatial axes after it.
        running_mean: The running mean of each real channel, or None.
        running_var: The running variance of each tuple, or None.
        weight: A scale for each tuple, or None.
        bias: An offset for each real channel, or None.
        use_input_stats: Whether to normalize by the statistics of the input, and to move the running statistics
            toward them. If False, the running statistics are used.
        momentum: The weight of the input in the running statistics.
        eps: The number added to the variance.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> an.nn.functional.instance_norm(torch.randn(2, 12, 5), algebra=an.H).shape
    torch.Size([2, 12, 5])
    """
    over = resolve(algebra, "instance_norm", "functional.")
    num_tuples = num_tuples_on_axis_1(input, over)
    if running_mean is not None:
        check_size("running_mean", running_mean, input.shape[1], "channels")
    if running_var is not None:
        check_size("running_var", running_var, num_tuples, "tuples")
    t = input.unflatten(1, (over.dim, -1, 1))  # groups of one tuple
    if use_input_stats:
        count = prod(input.shape[2:])
        if count < 2:
            raise ValueError(
                "the input must have more than one position on its spatial axes, because a single tuple is its own "
                f"mean; got shape {tuple(input.shape)}."
            )
        mean, deviation, variance = _statistics(t)
        if input.shape[0]:
            _move_toward(running_mean, mean, momentum)
            _move_toward(running_var, variance * (count / (count - 1)), momentum)  # unbiased, as in torch
    elif running_mean is None or running_var is None:
        raise ValueError("use_input_stats=False needs both running_mean and running_var; got None.")
    else:
        ones = [1] * (t.dim() - 3)
        deviation = t.to(sum_dtype(t)) - running_mean.view(over.dim, -1, *ones)
        variance = running_var.to(deviation.dtype).view(-1, *ones)
    return _normalize(deviation, variance, weight, bias, eps).to(input.dtype)


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    algebra: Algebra | str = REQUIRED,
) -> Tensor:
    """`torch.nn.functional.rms_norm` with one scale for each tuple.

    The root mean square is taken over all features, as in torch.

    Args:
        input: Activations, with tuples on the last axis.
        normalized_shape: The sizes of the last axes of the input. Over an algebra other than R, ``weight`` must be None
            if there is more than one, because only the last axis holds tuples.
        weight: A scale for each tuple, or None.
        eps: The number added to the mean square, or None for torch's default, which depends on the dtype.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> an.nn.functional.rms_norm(torch.randn(2, 12), [12], torch.ones(3), algebra=an.H).shape
    torch.Size([2, 12])
    """
    over = resolve(algebra, "rms_norm", "functional.")
    shape = check_normalized_shape(normalized_shape, over, scaled=weight is not None)
    if weight is not None and over.dim > 1:
        weight = check_size("weight", weight, shape[-1] // over.dim, "tuples").repeat(over.dim)
    return F.rms_norm(input, list(shape), weight, eps)


def local_response_norm(
    input: Float[Tensor, "batch chan *size"],
    size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    *,
    algebra: Algebra | str = REQUIRED,
) -> Float[Tensor, "batch chan *size"]:
    """`torch.nn.functional.local_response_norm` for tuples: ``x / (k + alpha * s) ** beta``.

    Here ``s`` is the sum of squares of ``size`` neighboring tuples, divided by ``size``. The square of a tuple is the
    mean square of its components, so torch's defaults keep their meaning.

    Args:
        input: Activations with channels on axis 1 and spatial axes after it.
        size: The number of neighboring tuples.
        alpha: The factor of the sum of squares.
        beta: The exponent.
        k: The number added to the sum.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> an.nn.functional.local_response_norm(torch.randn(2, 12, 5, 5), 3, algebra=an.H).shape
    torch.Size([2, 12, 5, 5])
    """
    over = resolve(algebra, "local_response_norm", "functional.")
    num_tuples_on_axis_1(input, over, least=3)
    if input.numel() == 0:
        return input
    t = input.unflatten(1, (over.dim, -1))
    square = t.square().mean(1)
    before, after = size // 2, (size - 1) // 2
    neighbors = F.pad(square.flatten(2).unsqueeze(1), (0, 0, before, after))
    sums = F.avg_pool2d(neighbors, (size, 1), stride=1).view(square.shape)
    return (t / sums.mul(alpha).add(k).pow(beta).unsqueeze(1)).flatten(1, 2)


# Norms of groups of tuples, as tensors (batch, component, group, tuple, *size) ----------------------------------------


def _statistics(t: Float[Tensor, "batch comp group tuple *size"]) -> tuple[Tensor, Tensor, Tensor]:
    """The mean of each component in a group, the deviations from it, and one variance for each group.

    `torch.var_mean` would take several times as long on a CPU.
    """
    axes = tuple(range(3, t.dim()))
    mean = t.mean(axes, keepdim=True, dtype=sum_dtype(t))
    deviation = t - mean
    return mean, deviation, deviation.square().mean((1, *axes), keepdim=True)


def _normalize(
    deviation: Float[Tensor, "batch comp group tuple *size"],
    variance: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Float[Tensor, "batch chan *size"]:
    """``deviation / sqrt(variance + eps) * weight + bias``, with all channels on one axis."""
    sizes, ones = deviation.shape[1:4], [1] * (deviation.dim() - 4)
    scale = (variance + eps).rsqrt()
    if weight is not None:
        scale = scale * check_size("weight", weight, prod(sizes[1:]), "tuples").view(*sizes[1:], *ones)
    y = deviation * scale
    if bias is not None:
        y = y + check_size("bias", bias, prod(sizes), "channels").view(*sizes, *ones)
    return y.flatten(1, 3)


@torch.no_grad()
def _move_toward(running: Tensor | None, value: Float[Tensor, "batch ..."], momentum: float) -> None:
    """Move running statistics toward the mean of ``value`` over the batch."""
    if running is not None:
        running.lerp_(value.mean(0).flatten().to(running.dtype), momentum)
