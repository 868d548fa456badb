"""Plain torch versions of recurrent layers and cells over an algebra."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from algebranets import nn as ann
from algebranets.conversion.real.layers import Twin
from algebranets.conversion.real.modules import ReorderedSequence, permutations, traced
from algebranets.conversion.real.weights import RealParameters, on_parts, parts_of, real_weight
from algebranets.product.cells import MODES

_RNN_OPTIONS = {"RNN_TANH": {"nonlinearity": "tanh"}, "RNN_RELU": {"nonlinearity": "relu"}}


def recurrent(layer: Any, real: RealParameters) -> Any:
    """`torch.nn.RNN`, `torch.nn.LSTM` or `torch.nn.GRU`.

    A bidirectional layer of ours returns both directions of the first component, then both directions of the second
    one, and so on. torch's layer returns the whole forward direction first. So the columns of weights that read such an
    output are put into torch's order, and the features of the last output are put into our order.
    """
    options = dict(_RNN_OPTIONS.get(layer.mode, {}))
    if layer.proj_size:
        options["proj_size"] = layer.proj_size
    make = {"LSTM": nn.LSTM, "GRU": nn.GRU}.get(layer.mode, nn.RNN)
    made: Any = make(
        layer.input_size,
        layer.hidden_size,
        layer.num_layers,
        bias=layer.bias,
        batch_first=layer.batch_first,
        dropout=layer.dropout,
        bidirectional=layer.bidirectional,
        device="meta",
        **options,
    )
    in_parts, out_parts = parts_of(layer)
    for name in [name for name, _ in made.named_parameters()]:
        setattr(made, name, _parameter(layer, name, in_parts, real))
    made._init_flat_weights()
    order = _output_order(layer)
    _, after = permutations((None, out_parts), layer.algebra)
    if after is not None:
        order = order[after]
    if torch.equal(order, torch.arange(len(order))):
        return made
    reordered = ReorderedSequence(made, order.to(_device(layer)), layer in real.packed)
    return traced(reordered.train(layer.training), type(made).__name__)


def _parameter(layer: Any, name: str, in_parts: tuple[int, ...] | None, real: RealParameters) -> nn.Parameter:
    """The real parameter ``name``. If the layer has no recurrent bias, torch's is zero and needs no gradient."""
    stored = getattr(layer, name, None)
    if stored is None:
        gates = MODES[layer.mode].num_gates
        like = getattr(layer, name.replace("bias_hh", "bias_ih"))
        return nn.Parameter(like.new_zeros(gates * layer.hidden_size).detach(), requires_grad=False)
    if name.startswith("bias"):
        kept = real.same(stored)
        assert kept is not None
        return kept
    stacks = 1 if name.startswith("weight_hr") else MODES[layer.mode].num_gates
    is_first = name.startswith("weight_ih_l0")
    reorders = name.startswith("weight_ih") and not is_first and getattr(layer, "bidirectional", False)
    parts = in_parts if is_first else None

    def change(value: Tensor) -> Tensor:
        weight = on_parts(real_weight(value, layer.algebra, stacks=stacks), 1, parts, layer.algebra)
        if reorders:
            weight = weight.unflatten(1, (layer.algebra.dim, 2, -1)).transpose(1, 2).flatten(1, 3)
        return weight

    return real.make(stored, change, layer.algebra, stacks, reorders, parts)


def _output_order(layer: Any) -> Tensor:
    """The position in torch's output of each feature of our output."""
    size = layer.proj_size or layer.hidden_size
    places = torch.arange(size * layer.num_directions)
    return places.view(layer.num_directions, layer.algebra.dim, -1).transpose(0, 1).flatten()


def _device(layer: nn.Module) -> torch.device:
    return next(layer.parameters()).device


def cell(layer: Any, real: RealParameters) -> Any:
    """`torch.nn.RNNCell`, `torch.nn.LSTMCell` or `torch.nn.GRUCell`."""
    make: Any = {"LSTM": nn.LSTMCell, "GRU": nn.GRUCell}.get(layer.mode, nn.RNNCell)
    options = _RNN_OPTIONS.get(layer.mode, {})
    made = make(layer.input_size, layer.hidden_size, layer.bias_ih is not None, device="meta", **options)
    for name in [name for name, _ in made.named_parameters()]:
        setattr(made, name, _parameter(layer, name, None, real))
    return made


TWINS: dict[type, Twin] = {
    **dict.fromkeys((ann.RNN, ann.LSTM, ann.GRU), recurrent),
    **dict.fromkeys((ann.RNNCell, ann.LSTMCell, ann.GRUCell), cell),
}
