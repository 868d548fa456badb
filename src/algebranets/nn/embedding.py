"""Embeddings whose vectors are read as tuples."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import checks, product
from algebranets.algebra import Algebra


class Embedding(nn.Embedding):
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
        algebra: Algebra | str,
        **kwargs: Any,
    ) -> None:
        over = algebras.get(algebra)
        checks.whole("num_embeddings", num_embeddings, least=0)
        product.whole_tuples(embedding_dim, over, "embedding_dim")
        checks.size("an embedding", (num_embeddings, embedding_dim))
        if padding_idx is not None and not -num_embeddings <= checks.whole("padding_idx", padding_idx) < num_embeddings:
            raise ValueError(
                f"padding_idx must name one of num_embeddings={num_embeddings} vectors, counted from the first or, if "
                f"negative, from the last; got {padding_idx}."
            )
        if max_norm is not None:
            checks.positive("max_norm", max_norm, or_zero=True)
        super().__init__(num_embeddings, embedding_dim, padding_idx, max_norm, *args, **kwargs)
        self.algebra = over

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, *args: Any, algebra: Algebra | str, **kwargs: Any) -> Embedding:  # type: ignore[override]
        """Return an embedding with the given vectors, like `torch.nn.Embedding.from_pretrained`.

        Args:
            embeddings: The vectors, (num_embeddings, embedding_dim).
            args, kwargs: The other arguments of `torch.nn.Embedding.from_pretrained`, in its order.
            algebra: The algebra, an `Algebra` or a name such as "M2R".
        """
        return nn.Embedding.from_pretrained.__func__(partial(cls, algebra=algebra), embeddings, *args, **kwargs)  # type: ignore[attr-defined]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, algebra={self.algebra.name}"
