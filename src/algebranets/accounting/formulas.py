"""How much each layer multiplies: one formula a layer, from its weights and the shapes that went through it.

A weight of ``tuples`` is used ``times`` over, once for each row or place, and each use is one product of tuples, which
over an algebra takes `Algebra.multiplies` real multiplies. A layer of your own joins with ``@work.register``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from algebranets import nn as ann
from algebranets import product
from algebranets.algebra import Algebra, R
from algebranets.nn.relative import KeyValueCache
from algebranets.product.cells import MODES

Conv = ann.Conv1d | ann.Conv2d | ann.Conv3d
ConvTranspose = ann.ConvTranspose1d | ann.ConvTranspose2d | ann.ConvTranspose3d
BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm


@dataclass(frozen=True)
class Product:
    """A weight, (component, ...), each of whose tuples is multiplied ``times`` with a tuple of the input."""

    tuples: Tensor
    times: int
    algebra: Algebra = R


@dataclass(frozen=True)
class Work:
    """What a layer itself multiplies, its children left out."""

    products: tuple[Product, ...] = ()
    #: Real multiplies between activations, as in attention scores, or with matrices that are not stored as weights.
    others: int = 0
    #: Numbers read of the layer's parameters, where it is not all of them.
    read: int | None = None


@singledispatch
def work(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Work | None:
    """The work of one call, or None where no formula is known. ``inputs`` are forward's arguments, all of them."""
    return None


@work.register
def _(module: ann.Linear, inputs: tuple[Any, ...], output: Tensor) -> Work:
    return Work((Product(module.weight_tuples, output.numel() // module.out_features, module.algebra),))


@work.register
def _(module: ann.SparseLinear, inputs: tuple[Any, ...], output: Tensor) -> Work:
    """Of the tuples that are there; their indices are read as well."""
    w = module.weight
    read = sum(t.nbytes for t in (w.starts, w.indices, w.values, module.bias) if t is not None)
    rows = output.numel() // module.out_features
    return Work((Product(w.values.T, rows, module.algebra),), read=read // w.values.element_size())


@work.register
def _(module: Conv | ConvTranspose, inputs: tuple[Any, ...], output: Tensor) -> Work:
    places = inputs[0].numel() // module.in_channels if module.transposed else output.numel() // module.out_channels
    return Work((Product(module.weight_tuples, places, module.algebra),))


@work.register
def _(module: ann.RNN | ann.LSTM | ann.GRU, inputs: tuple[Any, ...], output: Any) -> Work:
    def tuples(weight: Tensor, name: str) -> Tensor:
        stacks = 1 if name.startswith("weight_hr") else MODES[module.mode].num_gates
        return product.weight_tuples(weight, module.algebra, stacks=stacks)

    return _recurrent(module, inputs, tuples, module.algebra)


@work.register
def _(module: ann.RNNCell | ann.LSTMCell | ann.GRUCell, inputs: tuple[Any, ...], output: Any) -> Work:
    gates = MODES[module.mode].num_gates
    rows = inputs[0].numel() // module.input_size
    weights = (product.weight_tuples(w, module.algebra, stacks=gates) for w in (module.weight_ih, module.weight_hh))
    return Work(tuple(Product(w, rows, module.algebra) for w in weights))


@work.register
def _(module: ann.MultiheadAttention, inputs: tuple[Any, ...], output: Any) -> Work:
    weights = _projections(module, inputs)
    products = (Product(product.weight_tuples(w, module.algebra), rows, module.algebra) for w, rows in weights)
    return Work(tuple(products), others=_scores(module, inputs))


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
    """One matrix for each tuple: at inference the whitening and the affine part are one."""
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
    return _recurrent(module, inputs, lambda weight, _: weight[None], R)


@work.register
def _(module: nn.RNNCellBase, inputs: tuple[Any, ...], output: Any) -> Work:
    rows = inputs[0].numel() // module.input_size
    return Work((Product(module.weight_ih[None], rows), Product(module.weight_hh[None], rows)))


@work.register
def _(module: nn.MultiheadAttention, inputs: tuple[Any, ...], output: Any) -> Work:
    # torch's reads the output projection's weight without calling it.
    weights = [*_projections(module, inputs), (module.out_proj.weight, inputs[0].numel() // module.embed_dim)]
    return Work(tuple(Product(w[None], rows) for w, rows in weights), others=_scores(module, inputs))


@work.register
def _(module: nn.Embedding, inputs: tuple[Any, ...], output: Tensor) -> Work:
    return Work(read=output.numel())


@work.register
def _(
    module: BatchNorm | nn.LayerNorm | nn.GroupNorm | nn.RMSNorm | nn.PReLU, inputs: tuple[Any, ...], output: Tensor
) -> Work:
    return Work()


def _recurrent(module: Any, inputs: tuple[Any, ...], tuples: Callable[[Tensor, str], Tensor], algebra: Algebra) -> Work:
    """Every matrix of every layer and direction, once a step and row."""
    x = inputs[0].data if isinstance(inputs[0], PackedSequence) else inputs[0]
    steps = x.numel() // module.input_size
    names = [name for name, _ in module.named_parameters() if name.startswith("weight")]
    return Work(tuple(Product(tuples(getattr(module, name), name), steps, algebra) for name in names))


def _projections(module: Any, inputs: tuple[Any, ...]) -> list[tuple[Tensor, int]]:
    """The weights that make queries, keys and values, and on how many rows."""
    if module.in_proj_weight is not None:
        weights = module.in_proj_weight.chunk(3)
    else:
        weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    return [(w, x.numel() // x.shape[-1]) for w, x in zip(weights, inputs[:3], strict=True)]


def _scores(module: Any, inputs: tuple[Any, ...]) -> int:
    """The products of queries and keys, and of weights and values; learned and zero keys are keys as well."""
    query, key = inputs[:2]
    axis = 1 if module.batch_first and query.dim() == 3 else 0
    num_keys = key.shape[axis] + (module.bias_k is not None) + bool(module.add_zero_attn)
    return 2 * num_keys * query.numel()
