"""Operations of the language models as the paper counts them.

They are not the multiply-adds that `algebranets.account` counts: the paper leaves some products out, counts others that
nobody computes, and counts differently in its two tables.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from torch import Tensor, nn

from algebranets.models.gru_lm import GRULanguageModel
from algebranets.models.transformer_xl import Memory, TransformerXL
from algebranets.nn.relative import KeyValueCache


@singledispatch
def count_operations(model: nn.Module, *inputs: Any) -> float | None:  # noqa: ARG001
    """The operations of ``model(*inputs)`` as the paper's table of this model counts them.

    >>> import torch
    >>> from algebranets import models
    >>> with torch.device("meta"):
    ...     model = models.create("gru_lm", algebra="M2R", hidden_size=64)
    >>> count_operations(model, *model.example_inputs())
    47104

    Args:
        model: Any model. Only Transformer-XL and the GRU language model have a count of their own in the paper.
        inputs: What the model is called with, such as ``model.example_inputs()``.

    Returns:
        The count, or None where the paper has no count for such a model or such inputs.
    """
    return None


@count_operations.register
def _(model: TransformerXL, tokens: Tensor, memory: Memory | None = None) -> float | None:
    """Multiply-adds of single tokens, as in Table 2 (Enwik8); the paper counts no longer inputs.

    The output and position projections are left out. The embedding is counted as a product with a one-hot vector.
    Scaling the scores is counted. A token sees ``window`` positions in all.
    """
    if memory is None or not isinstance(memory[0], KeyValueCache):
        return None
    multiplies_per_weight = model.algebra.multiplies / model.algebra.dim**2
    weights = 3 * model.d_model**2 + 2 * model.d_model * model.ff_size
    window = memory[0].window
    layer = multiplies_per_weight * weights + 3 * model.d_model * window + model.num_heads * window
    return tokens.numel() * (len(model.layers) * layer + 2 * model.embedding.weight.numel())


@count_operations.register
def _(model: GRULanguageModel, tokens: Tensor, _state: Tensor | None = None) -> float:
    """Operations, two to a multiply-add, by a formula fitted to the rows of Table 3 (WikiText-103).

    Half of the GRU's products count as one multiply per component, and the last layer's as one per tuple.
    """
    m, n = model.algebra.multiplies, model.algebra.dim
    h = model.hidden_size // n
    return tokens.numel() * (6 * h**2 * (m + n) + 2 * len(model.readouts) * m * h**2 + 2 * model.vocab_size * h)
