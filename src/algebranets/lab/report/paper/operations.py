"""Operations of the language models as the paper counts them.

They are not the multiply-adds that `algebranets.account` counts: the paper leaves some products out, counts products
that are never computed, and counts differently in its two tables.
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
        inputs: The model's inputs, such as ``model.example_inputs()``.

    Returns:
        The count, or None if the paper has no count for this model or these inputs.
    """
    return None


@count_operations.register
def _(model: TransformerXL, tokens: Tensor, memory: Memory | None = None) -> float | None:
    """Multiply-adds as in Table 2 (Enwik8), or None without a key-value cache: the paper counts single tokens only.

    The output and position projections are left out. The embedding is counted as a product with a one-hot vector.
    Scaling the scores is counted. A token sees ``window`` positions in total.
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
    """Operations, two per multiply-add, by a formula fitted to the rows of Table 3 (WikiText-103).

    Half of the GRU's products count as one multiply per component, and those of the last layer as one per tuple.
    """
    m, n = model.algebra.multiplies, model.algebra.dim
    h = model.hidden_size // n
    return tokens.numel() * (6 * h**2 * (m + n) + 2 * len(model.readouts) * m * h**2 + 2 * model.vocab_size * h)
