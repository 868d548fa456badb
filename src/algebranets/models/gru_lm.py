"""The paper's GRU character model over an algebra (Section 4.4).

Shapes: B batch, T time, E = hidden_size, V characters.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from algebranets import algebra as algebras
from algebranets import checks, product
from algebranets.algebra import Algebra
from algebranets.nn import GRU, Embedding, Linear, TupleLayerNorm, TupleNorm


class Readout(nn.Module):
    """A linear layer with ReLU beside a skip connection, then a layer norm."""

    def __init__(self, hidden_size: int, algebra: Algebra, lowering: product.Lowering) -> None:
        super().__init__()
        self.linear = Linear(hidden_size, hidden_size, algebra=algebra, lowering=lowering)
        self.norm = TupleLayerNorm(hidden_size, algebra=algebra)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + torch.relu(self.linear(x)))


class GRULanguageModel(nn.Module):
    """One GRU, five readouts, one tuple a character, its norm the logit.

    Each component of the first tuples is a linear map of the one-hot character: an embedding. The GRU has one bias a
    gate. ``hidden_size`` is in real numbers: the paper's M2(R) "512" is 2048 here.

    >>> import torch, algebranets as an
    >>> model = an.models.create("gru_lm", algebra="M2R", hidden_size=64)
    >>> logits, state = model(torch.randint(256, (2, 10)))
    >>> logits, state = model(torch.randint(256, (2, 1)), state)  # goes on from there
    >>> logits.shape, state.shape
    (torch.Size([2, 1, 256]), torch.Size([1, 2, 64]))
    """

    #: The axis of a state that counts texts.
    state_batch_axis: ClassVar[int] = 1

    def __init__(
        self,
        *,
        algebra: Algebra | str,
        hidden_size: int = 2048,
        num_readouts: int = 5,
        vocab_size: int = 256,
        lowering: product.Lowering = "auto",
    ) -> None:
        super().__init__()
        checks.whole("num_readouts", num_readouts, least=0)
        checks.whole("vocab_size", vocab_size, least=1)
        self.algebra, self.hidden_size, self.vocab_size = algebras.get(algebra), hidden_size, vocab_size
        product.whole_tuples(hidden_size, self.algebra, "hidden_size")
        self.embedding = Embedding(vocab_size, hidden_size, algebra=self.algebra)
        self.gru = GRU(
            hidden_size, hidden_size, batch_first=True, recurrent_bias=False, algebra=self.algebra, lowering=lowering
        )
        self.readouts = nn.Sequential(*(Readout(hidden_size, self.algebra, lowering) for _ in range(num_readouts)))
        self.head = Linear(hidden_size, vocab_size * self.algebra.dim, algebra=self.algebra, lowering=lowering)
        self.logits = TupleNorm(algebra=self.algebra)

    def forward(
        self, tokens: Int[Tensor, "batch time"], state: Float[Tensor, "1 batch hid"] | None = None
    ) -> tuple[Float[Tensor, "batch time vocab"], Float[Tensor, "1 batch hid"]]:
        """Logits, and the state to go on from."""
        y, state = self.gru(self.embedding(tokens), state)
        return self.logits(self.head(self.readouts(y))), state

    def cache(self, state: Tensor) -> Tensor:
        """What to hand `forward` to go on one token at a time: the state itself."""
        return state

    def example_inputs(self) -> tuple[Tensor, Tensor]:
        """One token, as `account` wants it."""
        device = next(self.parameters()).device
        return torch.zeros(1, 1, dtype=torch.long, device=device), torch.zeros(1, 1, self.hidden_size, device=device)

    def paper_operations(self, tokens: Tensor, _state: Tensor | None = None) -> float:
        """Operations as the paper's WikiText table has them, two to a multiply-add: fitted to its rows.

        Half of the GRU's products are counted as one multiply a component, and the last layer's as one a tuple.
        """
        m, n = self.algebra.multiplies, self.algebra.dim
        h = self.hidden_size // n
        return tokens.numel() * (6 * h**2 * (m + n) + 2 * len(self.readouts) * m * h**2 + 2 * self.vocab_size * h)
