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
    """A linear layer with ReLU and a skip connection, then a layer norm."""

    def __init__(self, hidden_size: int, algebra: Algebra, lowering: product.Lowering) -> None:
        super().__init__()
        self.linear = Linear(hidden_size, hidden_size, algebra=algebra, lowering=lowering)
        self.norm = TupleLayerNorm(hidden_size, algebra=algebra)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + torch.relu(self.linear(x)))


class GRULanguageModel(nn.Module):
    """The paper's GRU character model over an algebra.

    It is an embedding, a GRU with one bias for each gate, readouts, and a linear layer that gives one tuple for each
    character. The norm of the tuple is the logit.

    Args:
        algebra: The algebra, an `Algebra` or a name such as "M2R".
        hidden_size: The number of real features in the hidden state, a multiple of the algebra's dim. The paper counts
            tuples: its M2(R) "512" is 2048 here.
        num_readouts: The number of readouts between the GRU and the logits. Each is a linear layer with ReLU, a skip
            connection and a layer norm.
        vocab_size: The number of different tokens.
        lowering: How products are computed: "auto" (chosen by device, shape and dtype), "blocks", "parts",
            "bilinear", "kernels" or "reference". All give the same result up to rounding.

    >>> import torch, algebranets as an
    >>> model = an.models.create("gru_lm", algebra="M2R", hidden_size=64)
    >>> logits, state = model(torch.randint(256, (2, 10)))
    >>> logits, state = model(torch.randint(256, (2, 1)), state)  # continues from there
    >>> logits.shape, state.shape
    (torch.Size([2, 1, 256]), torch.Size([1, 2, 64]))
    """

    #: The batch axis of a state.
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
        self.logits = TupleNorm(dim=-1, algebra=self.algebra)

    def forward(
        self, tokens: Int[Tensor, "batch time"], state: Float[Tensor, "1 batch hid"] | None = None
    ) -> tuple[Float[Tensor, "batch time vocab"], Float[Tensor, "1 batch hid"]]:
        """Return the logits for the next token at each position, and the state to continue from.

        Args:
            tokens: A batch of texts.
            state: The state that an earlier call returned, or None at the beginning of a text.
        """
        y, state = self.gru(self.embedding(tokens), state)
        return self.logits(self.head(self.readouts(y))), state

    def cache(self, state: Tensor) -> Tensor:
        """Return the state to pass to `forward` when generating one token at a time: for a GRU, the state itself."""
        return state

    def example_inputs(self) -> tuple[Tensor, Tensor]:
        """One token and a state, for `account`."""
        device = next(self.parameters()).device
        return torch.zeros(1, 1, dtype=torch.long, device=device), torch.zeros(1, 1, self.hidden_size, device=device)
