"""Embeddings over an algebra."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import product
from algebranets.algebra import Algebra


class Embedding(nn.Embedding):
    """`torch.nn.Embedding` whose vectors are read as tuples: the paper's reshaped embedding, nothing is multiplied.

    >>> import torch, algebranets as an
    >>> an.tuples(an.nn.Embedding(256, 512, algebra=an.M2R)(torch.tensor([1, 2, 3])), an.M2R).shape
    torch.Size([3, 4, 128])
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, *args: Any, algebra: Algebra | str, **kwargs: Any
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, *args, **kwargs)
        self.algebra = algebras.get(algebra)
        product.whole_tuples(embedding_dim, self.algebra, "embedding_dim")

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, *args: Any, algebra: Algebra | str, **kwargs: Any) -> Embedding:  # type: ignore[override]
        """`torch.nn.Embedding.from_pretrained` over an algebra."""
        return nn.Embedding.from_pretrained.__func__(partial(cls, algebra=algebra), embeddings, *args, **kwargs)  # type: ignore[attr-defined]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, algebra={self.algebra.name}"
