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
    """`torch.nn.LayerNorm`, also of a sum: what stands behind a residual connection.

    >>> import torch
    >>> norm, x, y = AddNorm(6), torch.randn(2, 6), torch.randn(2, 6)
    >>> torch.equal(norm(x, y), torch.nn.functional.layer_norm(x + y, (6,)))
    True
    """

    def __init__(self, num_features: int) -> None:
        super().__init__(num_features)

    def forward(
        self, x: Float[Tensor, "*batch feat"], y: Float[Tensor, "*batch feat"] | None = None
    ) -> Float[Tensor, "*batch feat"]:
        if y is None:
            return super().forward(x)
        if applies(x) and x.dtype == y.dtype:
            return add_norm(x, y, self.weight, self.bias, self.eps)
        return super().forward(x + y)


@torch.library.custom_op(
    "algebranets::add_norm",
    mutates_args=(),
    schema="(Tensor x, Tensor y, Tensor weight, Tensor bias, float eps) -> Tensor",
)
def add_norm(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """The layer norm of ``x + y``."""
    from algebranets.nn.jit import attention  # needs triton

    return attention.add_norm(x, y, weight, bias, eps)


@add_norm.register_fake
def _(x: Tensor, _y: Tensor, _weight: Tensor, _bias: Tensor, _eps: float) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


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
