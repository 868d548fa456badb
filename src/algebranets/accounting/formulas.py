"""Formulas for a layer's multiplies in one call, from its weights and the shapes of inputs and outputs.

Each tuple of a weight is multiplied once for each row or position. A product of tuples takes as many real multiplies as
the table of `Algebra.stored` has terms (`Algebra.multiplies`). Changes of basis are not counted. Linear layers and
convolutions with ``algebra_weights()`` need no formula. For other layers of your own, write a formula with
``@work.register``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from algebranets import nn as ann
from algebranets import product
from algebranets.algebra import Algebra, R
from algebranets.nn.adaptive_softmax import LogitHead
from algebranets.nn.relative import KeyValueCache
from algebranets.nn.weights import AlgebraWeight, algebra_weights

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm


@dataclass(frozen=True)
class Product:
    """Products of a weight's tuples with tuples of the input.

    Args:
        tuples: The weight as it is stored, with components on the first axis.
        times: The number of times that each tuple of the weight is multiplied.
        algebra: The algebra; R by default.

    >>> import torch
    >>> Product(torch.ones(1, 3, 2), times=5).algebra.name
    'R'
    """

    tuples: Tensor
    times: int
    algebra: Algebra = R


@dataclass(frozen=True)
class Work:
    """The multiplications of one call of a layer, without those of its children.

    Args:
        products: Products with weights.
        others: Real multiplies between activations, as in attention scores, or with matrices that are not weights.
        read: The number of parameters that the layer reads, in real numbers; None for all of them.

    >>> Work(others=12).products
    ()
    """

    products: tuple[Product, ...] = ()
    others: int = 0
    read: int | None = None


@singledispatch
def work(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Work | None:
    """Return the work of one call, or None if no formula is known.

    Linear layers and convolutions with ``algebra_weights()`` need no formula of their own. Each weight multiplies once
    for each row or position of the output (of the input, if the weight is transposed).

    Args:
        module: The layer that was called.
        inputs: All arguments of its ``forward``, including defaults.
        output: The result of its ``forward``.

    >>> import torch, algebranets as an
    >>> layer = an.nn.Linear(8, 12, algebra=an.H)
    >>> x = torch.randn(5, 8)
    >>> [product.times for product in work(layer, (x,), layer(x)).products]
    [5]
    """
    products = []
    for weight in algebra_weights(module):
        times = _num_rows(weight, getattr(module, weight.name), inputs, output)
        if times is None:
            return None
        products.append(_product(module, weight, times))
    return Work(tuple(products)) if products else None


@work.register
def _(module: ann.SparseLinear, inputs: tuple[Any, ...], output: Tensor) -> Work:
    """Only nonzero tuples are multiplied. Their indices are read too."""
    w = module.weight
    read = sum(t.nbytes for t in (w.starts, w.indices, w.values, module.bias) if t is not None)
    rows = output.numel() // module.out_features
    return Work((Product(w.values.T, rows, module.algebra),), read=read // w.values.element_size())


@work.register
def _(module: ann.QuantizedLinear, inputs: tuple[Any, ...], output: Tensor) -> Work:
    """A number of the weight takes one byte. Scales and bias are read too."""
    tuples = product.stored_tuples(module.weight, module.algebra)
    read = sum(t.nbytes for t in (module.weight, module.scale, module.bias) if t is not None)
    rows = output.numel() // module.out_features
    return Work((Product(tuples, rows, module.algebra),), read=read // module.weight.element_size())


@work.register
def _(module: ann.RNN | ann.LSTM | ann.GRU, inputs: tuple[Any, ...], output: Any) -> Work:
    steps = _num_steps(module, inputs)
    return Work(tuple(_product(module, weight, steps) for weight in algebra_weights(module)))


@work.register
def _(module: ann.MultiheadAttention, inputs: tuple[Any, ...], output: Any) -> Work:
    weights = [weight.stored_tuples(getattr(module, weight.name)) for weight in algebra_weights(module)]
    projections = weights[0].chunk(3, dim=1) if len(weights) == 1 else weights
    rows = (x.numel() // x.shape[-1] for x in inputs[:3])
    products = (Product(w, n, module.algebra) for w, n in zip(projections, rows, strict=True))
    return Work(tuple(products), others=_scores(module, inputs))


@work.register
def _(module: ann.Bilinear, inputs: tuple[Any, ...], output: Tensor) -> Work:
    """The weight is multiplied with the first input, and the result with the second input."""
    (weight,) = module.algebra_weights()
    rows = output.numel() // module.out_features
    num_pairs = (module.out_features // module.algebra.dim) * (module.in2_features // module.algebra.dim)
    return Work((_product(module, weight, rows),), others=rows * num_pairs * module.algebra.multiplies)


@work.register
def _(module: LogitHead, inputs: tuple[Any, ...], output: Tensor) -> Work:
    """The output has one number for each tuple, so rows are counted in the input."""
    (weight,) = module.algebra_weights()
    return Work((_product(module, weight, inputs[0].numel() // module.in_features),))


@work.register
def _(module: ann.RelativeAttention, inputs: tuple[Any, ...], output: Tensor) -> Work:
    x, positions, _, _, memory, *_ = inputs
    batch, time, embed = x.shape
    if isinstance(memory, KeyValueCache):
        keys = distances = memory.window + 1
    else:
        keys = time + (0 if memory is None else memory.shape[1])
        distances = min(keys, len(positions))
    return Work(others=batch * time * embed * (2 * keys + distances))


@work.register
def _(module: ann.Whitening1d | ann.Whitening2d | ann.Whitening3d, inputs: tuple[Any, ...], output: Tensor) -> Work:
    """Each tuple is multiplied by one matrix, because whitening and affine map are one product in evaluation mode."""
    return Work(others=output.numel() * module.algebra.dim)


# torch's own layers ---------------------------------------------------------------------------------------------------


@work.register
def _(module: nn.Linear, inputs: tuple[Any, ...], output: Tensor) -> Work:
    return Work((Product(module.weight[None], output.numel() // module.out_features),))


@work.register
def _(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, inputs: tuple[Any, ...], output: Tensor) -> Work:
    return Work((Product(module.weight[None], output.numel() // module.out_channels),))


@work.register
def _(
    module: nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d, inputs: tuple[Any, ...], output: Tensor
) -> Work:
    return Work((Product(module.weight[None], inputs[0].numel() // module.in_channels),))


@work.register
def _(module: nn.RNNBase, inputs: tuple[Any, ...], output: Any) -> Work:
    """Each matrix of each layer and direction multiplies once for each step."""
    steps = _num_steps(module, inputs)
    names = [name for name, _ in module.named_parameters() if name.startswith("weight")]
    return Work(tuple(Product(getattr(module, name)[None], steps) for name in names))


@work.register
def _(module: nn.RNNCellBase, inputs: tuple[Any, ...], output: Any) -> Work:
    rows = inputs[0].numel() // module.input_size
    return Work((Product(module.weight_ih[None], rows), Product(module.weight_hh[None], rows)))


@work.register
def _(module: nn.MultiheadAttention, inputs: tuple[Any, ...], output: Any) -> Work:
    if module.in_proj_weight is not None:
        projections = module.in_proj_weight.chunk(3)
    else:
        projections = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    # torch's layer reads the weight of its output projection without calling the projection.
    weights, inputs_of = (*projections, module.out_proj.weight), (*inputs[:3], inputs[0])
    products = (Product(w[None], x.numel() // x.shape[-1]) for w, x in zip(weights, inputs_of, strict=True))
    return Work(tuple(products), others=_scores(module, inputs))


@work.register
def _(module: nn.Bilinear, inputs: tuple[Any, ...], output: Tensor) -> Work:
    rows = output.numel() // module.out_features
    return Work((Product(module.weight[None], rows),), others=output.numel() * module.in2_features)


@work.register
def _(module: nn.Embedding, inputs: tuple[Any, ...], output: Tensor) -> Work:
    return Work(read=output.numel())


@work.register
def _(module: nn.EmbeddingBag, inputs: tuple[Any, ...], output: Tensor) -> Work:
    indices, _, weights = inputs
    read = indices.numel() * module.embedding_dim
    return Work(read=read, others=0 if weights is None else read)


@work.register
def _(
    module: BatchNorm | nn.LayerNorm | nn.GroupNorm | nn.RMSNorm | nn.PReLU, inputs: tuple[Any, ...], output: Tensor
) -> Work:
    return Work()


def _product(module: nn.Module, weight: AlgebraWeight, times: int) -> Product:
    return Product(weight.stored_tuples(getattr(module, weight.name)), times, weight.algebra)


def _num_rows(weight: AlgebraWeight, stored: Tensor, inputs: tuple[Any, ...], output: Any) -> int | None:
    """The number of rows or positions that a weight multiplies, or None if the shapes do not tell.

    The weight's first axis must have the channels of the output or, for a transposed weight, of the input.
    """
    x = inputs[0] if weight.transposed and inputs else output
    x = x[0] if isinstance(x, tuple) and x else x
    axis = 1 - stored.dim()  # the channel axis comes before the kernel's axes
    if not isinstance(x, Tensor) or x.dim() < -axis:
        return None
    num_channels = product.num_tuples(stored, weight.algebra, weight.stacks)[0] * weight.algebra.dim
    return x.numel() // x.shape[axis] if x.shape[axis] in (num_channels, weight.stacks * num_channels) else None


def _num_steps(module: Any, inputs: tuple[Any, ...]) -> int:
    """The number of time steps in a recurrent layer's input, summed over the batch."""
    x = inputs[0].data if isinstance(inputs[0], PackedSequence) else inputs[0]
    return x.numel() // module.input_size


def _scores(module: Any, inputs: tuple[Any, ...]) -> int:
    """The multiplies of queries and keys, and of attention weights and values, including learned and zero keys."""
    query, key = inputs[:2]
    axis = 1 if module.batch_first and query.dim() == 3 else 0
    num_keys = key.shape[axis] + (module.bias_k is not None) + bool(module.add_zero_attn)
    return 2 * num_keys * query.numel()
