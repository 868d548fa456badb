"""How each type of layer is built over an algebra: one table from types to builders."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from algebranets import accounting
from algebranets import nn as ann
from algebranets.algebra import Algebra
from algebranets.conversion import peers
from algebranets.conversion.parts import Parts, parted


@dataclass(frozen=True)
class Spec:
    """The new form of one converted layer.

    Args:
        algebra: The algebra of the new layer.
        in_parts: The parts of its input's channel axis, or None if the axis is planar.
        out_parts: The parts of its output's channel axis, or None if the axis is planar.
        lift: The mode of a Lift in front of the layer, or None for no Lift.
        head: "real", or "tuple_norm" for a layer with one tuple for each output, followed by a TupleNorm.
    """

    algebra: Algebra
    in_parts: Parts | None = None
    out_parts: Parts | None = None
    lift: str | None = None
    head: str = "real"

    @property
    def in_factor(self) -> int:
        """The number of input features, divided by that of the real layer."""
        return self.algebra.dim if self.lift else 1

    @property
    def out_factor(self) -> int:
        """The number of output features, divided by that of the real layer."""
        return self.algebra.dim if self.head == "tuple_norm" else 1


@dataclass(frozen=True)
class Kind:
    """How layers of one type are converted.

    Args:
        build: The function that makes the new layer from the old one, a `Spec`, and a dict with device and dtype.
        sizes: The names of the attributes that must be multiples of the algebra's dimension.
        num_axes: The number of spatial axes, or None if the layer cannot have a Lift or a TupleNorm.
        children: The names and types of children that a layer must have to be converted as a whole, or None if the
            type has no children. In a layer with other children, the children are converted instead.
        computes: Whether the layer computes new features. A norm does not, so it is never the first or the last layer
            of a model.
        transposed: Whether the old weight has its axes in the order (in, out).
        applies: A function that says whether a layer of this type needs to be converted.
        exact: Whether the layer is one of another library, with its own algebra. Then the new layer has the same
            weights and computes the same.
        changes_parameters: Whether the new layer has other parameters than the old one. An embedding keeps its table.
    """

    build: Callable[[Any, Spec, dict[str, Any]], nn.Module]
    sizes: tuple[str, ...]
    num_axes: int | None = None
    children: tuple[tuple[str, type], ...] | None = None
    computes: bool = True
    transposed: bool = False
    applies: Callable[[Any], bool] = lambda _: True
    exact: bool = False
    changes_parameters: bool = True


def build(old: nn.Module, spec: Spec, device: torch.device | str | None = None) -> nn.Module:
    """Return a new layer over an algebra, to replace a real layer. It has fresh weights.

    Args:
        old: The real layer.
        spec: What it becomes.
        device: The device of the new parameters. The default is the device of the old ones.

    >>> import algebranets as an
    >>> build(nn.Linear(8, 12), Spec(an.H))
    Linear(in_features=8, out_features=12, bias=True, algebra=H)
    """
    _, kind = lookup(old)
    assert kind is not None, "only layers of the table are built"
    like = next(old.parameters(), torch.empty(0))
    factory = {"device": like.device if device is None else device, "dtype": like.dtype}
    new = parted(kind.build(old, spec, factory), spec.in_parts, spec.out_parts)
    if spec.lift or spec.head != "real":
        new = _with_boundary(new, old, spec, kind, factory)
    return new.train(old.training)


def core(new: nn.Module) -> nn.Module:
    """Return the layer over the algebra, without the Lift, TupleNorm or wrapper around it.

    Args:
        new: A layer from `build`.
    """
    return new.layer if isinstance(new, (nn.Sequential, *peers.WRAPPERS)) else new  # type: ignore[return-value]


def weight_of(old: nn.Module, name: str) -> Tensor:
    """Return a weight of a real layer with its axes in the order of the new layer's weight.

    Args:
        old: The real layer.
        name: The name of the weight.
    """
    _, kind = lookup(old)
    weight: Tensor = getattr(old, name)
    return weight.T if kind is not None and kind.transposed else weight


def lookup(module: nn.Module) -> tuple[type, Kind | None]:
    """Return the type in the table from which a module is derived, and how it is converted, or None if it is not.

    Args:
        module: Any module.
    """
    if peers.find(module) is not None:
        return type(module), _PEER
    table = _table()
    return next(((cls, table[cls]) for cls in type(module).__mro__ if cls in table), (nn.Module, None))


def _with_boundary(layer: nn.Module, old: Any, spec: Spec, kind: Kind, factory: dict[str, Any]) -> nn.Sequential:
    """The layer with a Lift before it, a TupleNorm after it, or both."""
    num_axes = kind.num_axes or 0
    stages: OrderedDict[str, nn.Module] = OrderedDict()
    if spec.lift:
        lift: Any = (ann.Lift, ann.Lift1d, ann.Lift2d, ann.Lift3d)[num_axes]
        stages["lift"] = lift(getattr(old, kind.sizes[0]), spec.lift, **factory, algebra=spec.algebra)
    stages["layer"] = layer
    if spec.head == "tuple_norm":
        stages["norm"] = ann.TupleNorm(dim=-1 - num_axes, algebra=spec.algebra)
    return nn.Sequential(stages)


# The table ------------------------------------------------------------------------------------------------------------


def _linear(in_name: str, out_name: str) -> Callable[[Any, Spec, dict[str, Any]], nn.Module]:
    def make(old: Any, spec: Spec, factory: dict[str, Any]) -> nn.Module:
        sizes = getattr(old, in_name) * spec.in_factor, getattr(old, out_name) * spec.out_factor
        return ann.Linear(*sizes, old.bias is not None, **factory, algebra=spec.algebra)

    return make


def _conv(cls: Any) -> Callable[[Any, Spec, dict[str, Any]], nn.Module]:
    def make(old: Any, spec: Spec, factory: dict[str, Any]) -> nn.Module:
        return cls(
            old.in_channels * spec.in_factor, old.out_channels * spec.out_factor, old.kernel_size,
            stride=old.stride, padding=old.padding, dilation=old.dilation, groups=old.groups,
            bias=old.bias is not None, padding_mode=old.padding_mode, **factory, algebra=spec.algebra,
            **({"output_padding": old.output_padding} if old.transposed else {}),
        )  # fmt: skip

    return make


def _embedding(old: Any, spec: Spec, factory: dict[str, Any]) -> nn.Module:
    names = ("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")
    options = {name: getattr(old, name) for name in names}
    return ann.Embedding(old.num_embeddings, old.embedding_dim, **options, **factory, algebra=spec.algebra)


def _embedding_bag(old: Any, spec: Spec, factory: dict[str, Any]) -> nn.Module:
    names = ("max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse", "include_last_offset", "padding_idx")
    options = {name: getattr(old, name) for name in names}
    return ann.EmbeddingBag(old.num_embeddings, old.embedding_dim, **options, **factory, algebra=spec.algebra)


def _recurrent(cls: Any) -> Callable[[Any, Spec, dict[str, Any]], nn.Module]:
    def make(old: Any, spec: Spec, factory: dict[str, Any]) -> nn.Module:
        names = ("num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size")
        options = {name: getattr(old, name) for name in names}
        if cls is ann.RNN:
            options["nonlinearity"] = old.nonlinearity
        return cls(old.input_size, old.hidden_size, **options, **factory, algebra=spec.algebra)

    return make


def _cell(cls: Any) -> Callable[[Any, Spec, dict[str, Any]], nn.Module]:
    def make(old: Any, spec: Spec, factory: dict[str, Any]) -> nn.Module:
        options = {"nonlinearity": old.nonlinearity} if cls is ann.RNNCell else {}
        sizes = old.input_size, old.hidden_size
        return cls(*sizes, old.bias_ih is not None, **options, **factory, algebra=spec.algebra)

    return make


def _bilinear(old: Any, spec: Spec, factory: dict[str, Any]) -> nn.Module:
    sizes = old.in1_features, old.in2_features, old.out_features
    return ann.Bilinear(*sizes, old.bias is not None, **factory, algebra=spec.algebra)


def _attention(old: Any, spec: Spec, factory: dict[str, Any]) -> nn.Module:
    names = ("embed_dim", "num_heads", "dropout", "kdim", "vdim", "batch_first", "add_zero_attn")
    options = {name: getattr(old, name) for name in names}
    options |= {"bias": old.in_proj_bias is not None, "add_bias_kv": old.bias_k is not None}
    return ann.MultiheadAttention(**options, **factory, algebra=spec.algebra)


def _transformer(cls: Any) -> Callable[[Any, Spec, dict[str, Any]], nn.Module]:
    def make(old: Any, spec: Spec, factory: dict[str, Any]) -> nn.Module:
        inner = old.self_attn
        new = cls(
            inner.embed_dim, inner.num_heads, old.linear1.out_features, old.dropout.p, old.activation,
            batch_first=inner.batch_first, norm_first=old.norm_first, bias=old.linear1.bias is not None,
            **factory, algebra=spec.algebra,
        )  # fmt: skip
        for name, child in old.named_children():  # norms, dropouts and an activation that is a module
            if not hasattr(new.get_submodule(name), "algebra"):
                setattr(new, name, child)
        return new

    return make


def _group_norm(old: Any, spec: Spec, factory: dict[str, Any]) -> nn.Module:
    options = {"eps": old.eps, "affine": old.affine, "bias": old.bias is not None}
    return ann.GroupNorm(old.num_groups, old.num_channels, **options, **factory, algebra=spec.algebra)


_CHANNELS = ("in_channels", "out_channels")
_ENCODER = (("self_attn", nn.MultiheadAttention), ("linear1", nn.Linear), ("linear2", nn.Linear))
_DECODER = (*_ENCODER, ("multihead_attn", nn.MultiheadAttention))

_TYPES: dict[type, Kind] = {
    nn.Linear: Kind(_linear("in_features", "out_features"), ("in_features", "out_features"), num_axes=0),
    nn.Conv1d: Kind(_conv(ann.Conv1d), _CHANNELS, num_axes=1),
    nn.Conv2d: Kind(_conv(ann.Conv2d), _CHANNELS, num_axes=2),
    nn.Conv3d: Kind(_conv(ann.Conv3d), _CHANNELS, num_axes=3),
    nn.ConvTranspose1d: Kind(_conv(ann.ConvTranspose1d), _CHANNELS, num_axes=1),
    nn.ConvTranspose2d: Kind(_conv(ann.ConvTranspose2d), _CHANNELS, num_axes=2),
    nn.ConvTranspose3d: Kind(_conv(ann.ConvTranspose3d), _CHANNELS, num_axes=3),
    nn.Embedding: Kind(_embedding, ("embedding_dim",), changes_parameters=False),
    nn.EmbeddingBag: Kind(_embedding_bag, ("embedding_dim",), changes_parameters=False),
    nn.RNN: Kind(_recurrent(ann.RNN), ("input_size", "hidden_size")),
    nn.LSTM: Kind(_recurrent(ann.LSTM), ("input_size", "hidden_size", "proj_size")),
    nn.GRU: Kind(_recurrent(ann.GRU), ("input_size", "hidden_size")),
    nn.RNNCell: Kind(_cell(ann.RNNCell), ("input_size", "hidden_size")),
    nn.LSTMCell: Kind(_cell(ann.LSTMCell), ("input_size", "hidden_size")),
    nn.GRUCell: Kind(_cell(ann.GRUCell), ("input_size", "hidden_size")),
    nn.Bilinear: Kind(_bilinear, ("in1_features", "in2_features", "out_features")),
    nn.MultiheadAttention: Kind(_attention, ("embed_dim", "kdim", "vdim"), children=()),
    nn.TransformerEncoderLayer: Kind(_transformer(ann.TransformerEncoderLayer), (), children=_ENCODER),
    nn.TransformerDecoderLayer: Kind(_transformer(ann.TransformerDecoderLayer), (), children=_DECODER),
    nn.GroupNorm: Kind(_group_norm, ("num_channels",), computes=False, applies=lambda norm: norm.num_groups > 1),
}
_CONV1D = Kind(_linear("nx", "nf"), ("nx", "nf"), num_axes=0, transposed=True)
_PEER = Kind(lambda old, _spec, _factory: peers.converted(old), (), children=(), exact=True)


def _table() -> dict[type, Kind]:
    """The table, with transformers' Conv1D if transformers is imported."""
    module = sys.modules.get("transformers.pytorch_utils")
    conv1d: Any = getattr(module, "Conv1D", None)
    if conv1d is None:
        return _TYPES
    if conv1d not in accounting.work.registry:
        accounting.work.register(conv1d, _conv1d_work)
    return {**_TYPES, conv1d: _CONV1D}


def _conv1d_work(module: Any, _: tuple[Any, ...], output: Tensor) -> accounting.Work:
    return accounting.Work((accounting.Product(module.weight[None], output.numel() // module.nf),))


def weights_over_algebra(new: nn.Module) -> Iterator[tuple[str, nn.Module, Any]]:
    """Yield each weight over an algebra in a new layer: the path of the module that has it, the module, the weight.

    Args:
        new: A layer over an algebra, without a Lift or TupleNorm.
    """
    for path, module in new.named_modules():
        for weight in ann.weights.algebra_weights(module):
            yield path, module, weight
