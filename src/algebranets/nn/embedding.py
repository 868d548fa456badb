"""Embeddings, and sums of embeddings, whose vectors are read as tuples."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn.layer import REQUIRED, Layer


class Embedding(Layer, nn.Embedding):
    """`torch.nn.Embedding` whose vectors are read as tuples, as in the paper. Nothing is multiplied.

    Args:
        num_embeddings: The number of vectors.
        embedding_dim: The number of real features in a vector, a multiple of the algebra's dim.
        padding_idx: The index of a vector that is not trained, or None.
        max_norm: The largest norm of a vector. Longer vectors are rescaled. None for no limit.
        args, kwargs: The other arguments of `torch.nn.Embedding`, in its order.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> an.tuples(an.nn.Embedding(256, 512, algebra=an.M2R)(torch.tensor([1, 2, 3])), an.M2R).shape
    torch.Size([3, 4, 128])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        *args: Any,
        algebra: Algebra | str = REQUIRED,
        **kwargs: Any,
    ) -> None:
        over = self.resolve(algebra)
        _check(num_embeddings, embedding_dim, padding_idx, max_norm, over)
        super().__init__(num_embeddings, embedding_dim, padding_idx, max_norm, *args, **kwargs)
        self.algebra = over

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, *args: Any, algebra: Algebra | str = REQUIRED, **kwargs: Any
    ) -> Embedding:
        """Return an embedding with the given vectors, like `torch.nn.Embedding.from_pretrained`.

        Args:
            embeddings: The vectors, (num_embeddings, embedding_dim).
            args, kwargs: The other arguments of `torch.nn.Embedding.from_pretrained`, in its order.
            algebra: The algebra, an `Algebra` or a name such as "M2R".
        """
        return nn.Embedding.from_pretrained.__func__(partial(cls, algebra=algebra), embeddings, *args, **kwargs)  # type: ignore[attr-defined]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, algebra={self.algebra.name}"


class EmbeddingBag(Layer, nn.EmbeddingBag):
    """`torch.nn.EmbeddingBag` whose vectors are read as tuples: sums, means or maxima of the vectors in each bag.

    Sums and means of tuples are tuples. A maximum is taken of each component by itself, as in a max pooling layer.

    Args:
        num_embeddings: The number of vectors.
        embedding_dim: The number of real features in a vector, a multiple of the algebra's dim.
        max_norm: The largest norm of a vector. Longer vectors are rescaled. None for no limit.
        norm_type: The p of the p-norm that ``max_norm`` limits.
        scale_grad_by_freq: Whether gradients are divided by the number of times that a vector occurs in a batch.
        mode: How the vectors of a bag are combined: "sum", "mean" or "max".
        sparse: Whether the gradient of the weight is a sparse tensor.
        _weight: The vectors, (num_embeddings, embedding_dim), or None for random ones. See `from_pretrained`.
        include_last_offset: Whether the last entry of ``offsets`` is the length of the input.
        padding_idx: The index of a vector that is not trained and is left out of every bag, or None.
        device, dtype: The device and dtype of the weight.
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> bags = an.nn.EmbeddingBag(10, 8, mode="sum", algebra=an.H)
    >>> bags(torch.tensor([1, 2, 4, 5]), offsets=torch.tensor([0, 3])).shape  # a bag of three vectors, and a bag of one
    torch.Size([2, 8])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        algebra: Algebra | str = REQUIRED,
    ) -> None:
        over = self.resolve(algebra)
        _check(num_embeddings, embedding_dim, padding_idx, max_norm, over)
        checks.one_of("mode", mode, ("sum", "mean", "max"))
        super().__init__(
            num_embeddings,
            embedding_dim,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            _weight,
            include_last_offset,
            padding_idx,
            device,
            dtype,
        )
        self.algebra = over

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, *args: Any, algebra: Algebra | str = REQUIRED, **kwargs: Any
    ) -> EmbeddingBag:
        """Return an embedding bag with the given vectors, like `torch.nn.EmbeddingBag.from_pretrained`.

        Args:
            embeddings: The vectors, (num_embeddings, embedding_dim).
            args, kwargs: The other arguments of `torch.nn.EmbeddingBag.from_pretrained`, in its order.
            algebra: The algebra, an `Algebra` or a name such as "M2R".
        """
        return nn.EmbeddingBag.from_pretrained.__func__(partial(cls, algebra=algebra), embeddings, *args, **kwargs)  # type: ignore[attr-defined]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, algebra={self.algebra.name}"


def _check(
    num_embeddings: int, embedding_dim: int, padding_idx: int | None, max_norm: float | None, algebra: Algebra
) -> None:
    """Raise an error unless these are numbers that an embedding over ``algebra`` can have."""
    checks.whole("num_embeddings", num_embeddings, least=0)
    product.whole_tuples(embedding_dim, algebra, "embedding_dim")
    checks.size("an embedding", (num_embeddings, embedding_dim))
    if padding_idx is not None and not -num_embeddings <= checks.whole("padding_idx", padding_idx) < num_embeddings:
        raise ValueError(
            f"padding_idx must be the index of one of num_embeddings={num_embeddings} vectors, counted from the first "
            f"or, if negative, from the last; got {padding_idx}."
        )
    if max_norm is not None:
        checks.positive("max_norm", max_norm, or_zero=True)
