"""Checks of arguments for the functions in `functional` and for layers that call them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from algebranets import checks, product
from algebranets.algebra import Algebra


def check_groups(name: str, groups: int, num_tuples: int, algebra: Algebra) -> None:
    """Raise an error unless ``groups`` divides the number of tuples. ``name`` is its name in the error."""
    if num_tuples % checks.whole(name, groups, least=1):
        raise ValueError(
            f"{name}={groups} must divide the number of tuples: {num_tuples * algebra.dim} channels are {num_tuples} "
            f"{algebra.name} tuples."
        )


def check_normalized_shape(shape: int | Sequence[int], algebra: Algebra, scaled: bool) -> tuple[int, ...]:
    """Return the sizes of the axes that `rms_norm` normalizes. Raise an error unless the last one holds whole tuples.

    Args:
        shape: The sizes, or the size of the last axis.
        algebra: The algebra.
        scaled: Whether tuples have scales. Then there must be one axis, so that it is clear which one holds tuples.
    """
    sizes = tuple(shape) if isinstance(shape, Sequence) and not isinstance(shape, str) else (shape,)
    if not sizes or (len(sizes) > 1 and scaled and algebra.dim > 1):
        raise ValueError(
            f"normalized_shape must be the size of the last axis, which holds {algebra.name} tuples; got {shape!r}. To "
            "normalize over several axes, leave out the scales (elementwise_affine=False or weight=None)."
        )
    if len(sizes) == 1:
        product.whole_tuples(sizes[0], algebra, "normalized_shape")
    return tuple(checks.whole("normalized_shape", size, least=1) for size in sizes)


def num_tuples_on_axis_1(input: Tensor, algebra: Algebra, least: int = 2) -> int:
    """The number of tuples on axis 1. Raises an error unless the input has ``least`` axes and whole tuples."""
    if input.dim() < least:
        raise ValueError(
            f"the input must have at least {least} axes, with the channels on axis 1; got shape {tuple(input.shape)}."
        )
    return input.shape[product.tuple_axis(input, algebra, 1)] // algebra.dim


def check_size(name: str, value: Tensor, size: int, what: str) -> Tensor:
    """Check that ``value`` holds one number for each of ``size`` tuples or channels."""
    if value.shape != (size,):
        raise ValueError(f"{name} must hold one number for each of {size} {what}; got shape {tuple(value.shape)}.")
    return value
