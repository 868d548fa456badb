"""Linear layers for few rows, as in decoding: one operator, ``algebranets::decode_linear``.

Its kernels read compact weights once. Gradients are those of the same product through blocks, recorded when they are
asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from algebranets.algebra import Algebra
from algebranets.product import blocks, kernels
from algebranets.product.combine import precision

#: Rows of a batch up to which these kernels are faster than the lowering to blocks.
FEW = 32
#: Of folded weights, for which blocks lay out nothing: rows and copies on CUDA cores, on tensor cores, multiplies.
FEW_FOLDED, MORE_FOLDED, MULTIPLIES = 4, 64, 1 << 28

#: Parameters and the versions at which they were read.
_READ: WeakIdKeyDictionary = WeakIdKeyDictionary()

ACTIVATIONS: dict[str | None, Callable[[Tensor], Tensor]] = {
    None: lambda x: x,
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


def applies(x: Tensor, weight: Tensor, algebra: Algebra) -> bool:
    """Whether `linear` is the better way: inference, few rows, and an algebra whose weights are smaller than real ones.

    Under autocast the weights must have its precision already, or casting would cost more than the product.
    """
    return (
        algebra.dim > 1
        and _is_small(x, weight, algebra)
        and x.dtype == weight.dtype
        and x.dtype in (torch.bfloat16, torch.float16, torch.float32)
        and kernels.usable(x)
        and not (torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad))
        and precision(x) == weight.dtype
    )


def _is_small(x: Tensor, weight: Tensor, algebra: Algebra) -> bool:
    rows = prod(x.shape[:-1])
    if not algebra.folded:
        return 0 < rows <= FEW
    copies = rows * algebra.blocks[0].num_copies
    more = x.dtype.itemsize == 2 and copies <= MORE_FOLDED and copies * weight.numel() <= MULTIPLIES
    return copies > 0 and (copies <= FEW_FOLDED or more)


def linear(
    x: Float[Tensor, "*batch inp"],
    weight: Tensor,
    bias: Tensor | None,
    algebra: Algebra,
    stacks: int = 1,
    activation: str | None = None,
) -> Float[Tensor, "*batch out"]:
    """``activation(w . x + b)``; the activation is None, "relu", "silu", "gelu", "sigmoid" or "tanh"."""
    rows, w, b = in_autocast(x.reshape(prod(x.shape[:-1]), x.shape[-1]), weight, bias)
    y = _OPERATOR(rows, w, b, spell(algebra), stacks, activation, frozen(w))
    return y.reshape(*x.shape[:-1], y.shape[1])


def in_autocast(x: Tensor, *others: Tensor | None) -> list[Any]:
    """All in autocast's precision, or that of ``x``: autocast does not know our operators."""
    return [None if t is None else t.to(precision(x)) for t in (x, *others)]


def frozen(weight: Tensor) -> bool:
    """Whether a kernel may read ``weight`` while the kernel before it still runs: that one does not write it.

    It cannot have written a parameter that has the version at which it was read here before. Any other tensor may have
    been made just now, and a compiler's graph does not ask again.
    """
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or not isinstance(weight, torch.nn.Parameter):
        return False
    before, _READ[weight] = _READ.get(weight), weight._version
    return bool(before == weight._version)


def spell(algebra: Algebra) -> list[int]:
    """The algebra as an operator can be given it: `read` knows its table again."""
    return [algebra.dim, *(number for term in algebra.terms for number in term)]


def read(spelling: list[int]) -> Algebra:
    """The algebra that `spell` wrote, without its names."""
    return _read(tuple(spelling))


@cache
def _read(spelling: tuple[int, ...]) -> Algebra:
    dim, *numbers = spelling
    terms = zip(*[iter(numbers)] * 4, strict=True)
    return Algebra("decoded", tuple(f"e{i}" for i in range(dim)), tuple(terms))


def gradients(
    function: Callable[..., Any], tensors: Sequence[Tensor | None], grads: Sequence[Tensor]
) -> list[Tensor | None]:
    """Of ``function(*tensors)``, which is computed once more and recorded this time; differentiable in turn."""
    further = torch.is_grad_enabled()
    with torch.enable_grad():
        own = [None if t is None else t.view_as(t) for t in tensors]  # one tensor may be given twice
        wanted = [t for t in own if t is not None and t.requires_grad]
        found = iter(torch.autograd.grad(function(*own), wanted, grads, create_graph=further, allow_unused=True))
    return [next(found) if t is not None and t.requires_grad else None for t in own]


def _run(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    algebra: list[int],
    stacks: int,
    activation: str | None,
    frozen: bool,
) -> Tensor:
    from algebranets.product.kernels.jit import decode  # needs triton

    return decode.linear(x, weight, bias, read(algebra), stacks, activation, frozen)


def _shape(x: Tensor, weight: Tensor, _bias: Tensor | None, algebra: list[int], *_rest: Any) -> Tensor:
    # However it is stored, a weight has a number for each component, output and input tuple.
    return x.new_empty(x.shape[0], weight.numel() // (x.shape[1] // algebra[0]))


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001, passed by name
    *tensors, algebra, ctx.stacks, ctx.activation, _ = inputs
    ctx.algebra = read(algebra)
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    again = partial(_through_blocks, algebra=ctx.algebra, stacks=ctx.stacks, activation=ctx.activation)
    return *gradients(again, ctx.saved_tensors, [grad]), None, None, None, None


def _through_blocks(
    x: Tensor, weight: Tensor, bias: Tensor | None, algebra: Algebra, stacks: int, activation: str | None
) -> list[Tensor]:
    return [ACTIVATIONS[activation](blocks.linear(x, weight, bias, algebra, stacks))]


_OPERATOR = torch.library.custom_op(
    "algebranets::decode_linear",
    _run,
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor? bias, int[] algebra, int stacks, str? activation, bool frozen) -> Tensor",
)
_OPERATOR.register_fake(_shape)
_OPERATOR.register_autograd(_backward, setup_context=_remember)
