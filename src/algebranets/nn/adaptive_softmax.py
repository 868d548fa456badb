"""`AdaptiveLogSoftmaxWithLoss` over an algebra, whose logits are norms of tuples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn.boundary import TupleNorm
from algebranets.nn.layer import REQUIRED, Layer
from algebranets.nn.linear import Linear, Weighted
from algebranets.ops.device import is_autocast


class LogitHead(Weighted):
    """A linear layer over an algebra whose real outputs are the L2 norms of its output tuples.

    Args:
        in_features: The number of real input features, a multiple of the algebra's dim.
        num_logits: The number of real outputs.
        bias: Whether to add a bias to the tuples.
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How the product is computed.
    """

    def __init__(
        self,
        in_features: int,
        num_logits: int,
        bias: bool,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        algebra: Algebra | str,
        lowering: product.Lowering,
    ) -> None:
        super().__init__(algebra, lowering)
        self.in_features, self.num_logits = in_features, num_logits
        num_in = product.whole_tuples(in_features, self.algebra, "in_features")
        shape = product.weight_shape(self.algebra, num_logits, num_in)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        size = num_logits * self.algebra.dim
        self.bias = nn.Parameter(torch.empty(size, device=device, dtype=dtype)) if bias else None
        self.norm = TupleNorm(dim=-1, algebra=self.algebra)
        self.reset_parameters()

    def forward(self, x: Float[Tensor, "*batch inp"]) -> Float[Tensor, "*batch logit"]:
        y = product.linear(x, self.weight, self.bias, algebra=self.algebra, lowering=self.lowering)
        return self.norm(y).to(self.weight.dtype)  # under autocast, logits have full precision

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, num_logits={self.num_logits}, bias={self.bias is not None}, "
            f"algebra={self.algebra.name}"
        )


class AdaptiveLogSoftmaxWithLoss(Layer, nn.AdaptiveLogSoftmaxWithLoss):
    """`torch.nn.AdaptiveLogSoftmaxWithLoss` over an algebra. Over R it computes the same as torch's layer.

    All projections are linear over the algebra. Each class and each cluster has one tuple, and its real logit is the L2
    norm of the tuple, as in the paper's classifiers (see `TupleNorm`). Probabilities of all classes sum to 1.

    Args:
        in_features: The number of real input features, a multiple of the algebra's dim.
        n_classes: The number of classes, with the most frequent class first.
        cutoffs: The first class of each cluster of less frequent classes, in increasing order.
        div_value: How much smaller the projection of each cluster is than that of the cluster before. Sizes are rounded
            to whole tuples, and to at least one.
        head_bias: Whether the tuples of the most frequent classes and of the clusters have a bias.
        device, dtype: The device and dtype of the parameters.
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        lowering: How products are computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> softmax = an.nn.AdaptiveLogSoftmaxWithLoss(32, 100, cutoffs=[10, 40], algebra=an.H)
    >>> x = torch.randn(7, 32)
    >>> output, loss = softmax(x, torch.randint(100, (7,)))
    >>> output.shape, loss.shape, torch.allclose(softmax.log_prob(x).exp().sum(1), torch.ones(7))
    (torch.Size([7]), torch.Size([]), True)
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        algebra: Algebra | str = REQUIRED,
        lowering: product.Lowering = "auto",
    ) -> None:
        nn.Module.__init__(self)  # torch's own __init__ makes real layers
        product.check_lowering(lowering)
        self.algebra = self.resolve(algebra)
        product.whole_tuples(in_features, self.algebra, "in_features")
        self.in_features, self.n_classes = in_features, checks.whole("n_classes", n_classes, least=1)
        self.cutoffs = [*_checked_cutoffs(cutoffs, n_classes), n_classes]
        self.div_value, self.head_bias = checks.positive("div_value", div_value), head_bias
        self.shortlist_size, self.n_clusters = self.cutoffs[0], len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        over: dict[str, Any] = {"algebra": self.algebra, "lowering": lowering, "device": device, "dtype": dtype}
        self.head = LogitHead(in_features, self.head_size, head_bias, **over)  # type: ignore[assignment]
        self.tail = nn.ModuleList()
        for n, (first, last) in enumerate(pairwise(self.cutoffs), start=1):
            size = product.nearest_multiple(in_features // div_value**n, self.algebra.dim)
            projection = Linear(in_features, size, bias=False, **over)
            self.tail.append(nn.Sequential(projection, LogitHead(size, last - first, bias=False, **over)))

    def forward(self, input_: Tensor, target_: Tensor) -> Any:
        """Return ``(output, loss)``: the log-probability of each target, and the negative of their mean.

        Args:
            input_: The input, (batch, in_features) or (in_features).
            target_: The target classes, (batch), or a scalar for a single input.
        """
        if is_autocast(input_):  # torch's sums have the dtype of the input
            input_ = input_.to(self.head.weight.dtype)
        return super().forward(input_, target_)


def _checked_cutoffs(cutoffs: Sequence[int], n_classes: int) -> list[int]:
    """Return the cutoffs as a list, or raise an error unless they increase and each leaves classes on both sides."""
    numbers = [checks.whole("cutoffs", number) for number in cutoffs] if isinstance(cutoffs, Iterable) else []
    if not numbers or any(a >= b for a, b in pairwise([0, *numbers, n_classes])):
        raise ValueError(
            f"cutoffs must be whole numbers from 1 to n_classes - 1 = {n_classes - 1}, in increasing order, with "
            f"at least one of them; got {cutoffs!r}."
        )
    return numbers
