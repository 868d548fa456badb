"""What a token goes through besides linear layers, one launch each: on a GPU, launches are most of what it costs.

These operators have no gradients and are only for where none are recorded; elsewhere torch's own do the same.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from algebranets.product import kernels


def applies(x: Tensor) -> bool:
    """Whether the operators below are what features like these go through."""
    return kernels.usable(x) and not torch.is_grad_enabled() and not torch.is_autocast_enabled(x.device.type)


class AddNorm(nn.LayerNorm):
    """A residual addition, and `torch.nn.LayerNorm` of the sum: gives both.

    >>> import torch
    >>> norm, x, y = AddNorm(6), torch.randn(2, 6), torch.randn(2, 6)
    >>> total, normalised = norm(x, y)
    >>> torch.equal(total, x + y), torch.equal(normalised, torch.nn.functional.layer_norm(x + y, (6,)))
    (True, True)
    """

    def __init__(self, num_features: int) -> None:
        super().__init__(num_features)

    def forward(  # type: ignore[override]
        self, x: Float[Tensor, "*batch feat"], y: Float[Tensor, "*batch feat"]
    ) -> tuple[Float[Tensor, "*batch feat"], Float[Tensor, "*batch feat"]]:
        if applies(x) and x.dtype == y.dtype:
            return add_norm(x, y, self.weight, self.bias, self.eps)
        total = x + y
        return total, super().forward(total)


@torch.library.custom_op(
    "algebranets::add_norm",
    mutates_args=(),
    schema="(Tensor x, Tensor y, Tensor weight, Tensor bias, float eps) -> (Tensor, Tensor)",
)
def add_norm(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """``x + y`` and its layer norm."""
    from algebranets.nn.jit import attention  # needs triton

    return attention.add_norm(x, y, weight, bias, eps)


@add_norm.register_fake
def _(x: Tensor, _y: Tensor, _weight: Tensor, _bias: Tensor, _eps: float) -> tuple[Tensor, Tensor]:
    total = torch.empty_like(x, memory_format=torch.contiguous_format)
    return total, torch.empty_like(total)


@torch.library.custom_op(
    "algebranets::attend",
    mutates_args=("keys", "values", "position", "arrivals"),
    schema="(Tensor query, Tensor key, Tensor value, Tensor u, Tensor v, Tensor(a!) keys, Tensor(b!) values, "
    "Tensor distances, Tensor(c!) position, Tensor(d!) arrivals, int dim) -> Tensor",
)
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    u: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    distances: Tensor,
    position: Tensor,
    arrivals: Tensor,
    dim: int,
) -> Tensor:
    """One token's relative attention to the rings of a `KeyValueCache`, which take its key and value.

    What is not in the cache is planar, (batch, 1, embed) and (embed), and so is the output; tuples have ``dim``
    components.
    """
    from algebranets.nn.jit import attention  # needs triton

    return attention.attend(query, key, value, u, v, keys, values, distances, position, arrivals, dim)


@attend.register_fake
def _(query: Tensor, *_: object) -> Tensor:
    return torch.empty_like(query, memory_format=torch.contiguous_format)
