"""Quantized layers, which store one byte for each number of their weight, and `quantize`, which makes them.

>>> import torch, algebranets as an
>>> model = an.nn.Sequential(an.nn.Embedding(10, 64, algebra=an.M2R), an.nn.Linear(64, 64, algebra=an.M2R))
>>> small = an.quantize(model, "int8")
>>> small
Sequential(
  (0): Embedding(10, 64, algebra=M2R)
  (1): QuantizedLinear(in_features=64, out_features=64, bias=True, algebra=M2R)
)
>>> print(small.quantization)
int8: 1 layer quantized, with 1,344 bytes instead of 4,352
quantized: 1
not quantized: 0 (Embedding)
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeGuard, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from algebranets import checks
from algebranets import product as products
from algebranets.nn.layer import Layer
from algebranets.nn.linear import Linear
from algebranets.product import quantized as product
from algebranets.product.quantized import Quantized

#: The types of numbers to which `quantize` rounds weights.
KINDS = ("int8",)

ModelT = TypeVar("ModelT", bound=nn.Module)


class QuantizedLinear(Layer):
    """A linear layer over an algebra whose weight is int8 numbers, with one scale for each output tuple.

    It is for inference only: the weight and the bias get no gradients. Gradients of the input are those of the
    dequantized weight. `algebranets.quantize` makes it from an `algebranets.nn.Linear`. Casting the layer to another
    dtype casts the bias, but not the weight and its scales, which stay in float32.

    Args:
        weight: The int8 numbers and their scales.
        bias: The bias, one number for each output feature, or None.
        lowering: How products of the dequantized weight are computed, as in `Linear`.

    >>> import torch, algebranets as an
    >>> dense = an.nn.Linear(512, 512, algebra=an.H)
    >>> layer = an.quantize(dense, "int8")
    >>> layer.weight.dtype, layer.scale.shape
    (torch.int8, torch.Size([128]))
    >>> x = torch.randn(3, 512)
    >>> bool((layer(x) - dense(x)).norm() < 0.01 * dense(x).norm())
    True
    """

    def __init__(self, weight: Quantized, bias: Tensor | None, lowering: products.Lowering = "auto") -> None:
        super().__init__()
        products.check_lowering(lowering)
        self.algebra, self.lowering = weight.algebra, lowering
        num_out, num_in = products.num_tuples(weight.numbers, weight.algebra)
        self.in_features, self.out_features = num_in * weight.algebra.dim, num_out * weight.algebra.dim
        self.weight = nn.Parameter(weight.numbers, requires_grad=False)
        self.scale = nn.Parameter(weight.scale, requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    @property
    def quantized(self) -> Quantized:
        """The int8 numbers and their scales."""
        return Quantized(self.weight, self.scale, self.algebra)

    def dequantized(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the weight as numbers of ``dtype``, stored like the weight of a `Linear`.

        Args:
            dtype: A floating-point dtype.
        """
        return product.dequantize(self.quantized, dtype)

    def forward(self, x: Float[Tensor, "*batch inp"], activation: str | None = None) -> Float[Tensor, "*batch out"]:
        """Apply the layer to the last axis of ``x``.

        Args:
            x: The input, ``in_features`` real numbers on the last axis.
            activation: An activation to apply to the output: "relu", "silu", "gelu", "sigmoid" or "tanh".
        """
        return product.linear(x, self.quantized, self.bias, lowering=self.lowering, activation=activation)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"algebra={self.algebra.name}"
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> QuantizedLinear:
        """Move or cast the layer, as `to` and `half` do. The scales are moved, but stay in float32."""
        exact = self.scale.detach()
        super()._apply(fn, recurse)
        if self.scale.dtype != exact.dtype:
            self.scale.data = exact.to(self.scale.device)
        return self

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Load a weight of int8 numbers. A weight of other numbers would be cut to whole numbers, so it is an error."""
        weight = state_dict.get(f"{prefix}weight")
        if isinstance(weight, Tensor) and weight.dtype != torch.int8 and not self._other_algebra(state_dict, prefix):
            raise ValueError(
                f"the weight of {prefix.rstrip('.') or 'this layer'} must be int8 numbers, because the layer is "
                f"quantized; got {weight.dtype}. Load the state dict into the model before you quantize it."
            )
        super()._load_from_state_dict(state_dict, prefix, *args)


@dataclass(frozen=True)
class Quantization:
    """The report on a quantized model, which the model carries as ``model.quantization``. Print it.

    Args:
        kind: What weights were quantized to, "int8".
        quantized: The names of the quantized layers.
        kept: The other modules that have matrices of their own: their names and the names of their classes.
        bytes_before: The bytes of the quantized layers' parameters before.
        bytes_after: The bytes of the quantized layers' parameters after.
    """

    kind: str
    quantized: tuple[str, ...]
    kept: tuple[tuple[str, str], ...]
    bytes_before: int
    bytes_after: int

    def __str__(self) -> str:
        plural = "s" * (len(self.quantized) != 1)
        lines = [
            f"{self.kind}: {len(self.quantized)} layer{plural} quantized, with {self.bytes_after:,} bytes instead of "
            f"{self.bytes_before:,}",
            f"quantized: {', '.join(self.quantized)}",
        ]
        if self.kept:
            lines.append(f"not quantized: {', '.join(f'{name} ({kind})' for name, kind in self.kept)}")
        return "\n".join(lines)


def quantize(model: ModelT, kind: str = "int8") -> ModelT:
    """Return a copy of a model whose linear layers store their weights as int8 numbers. It is for inference only.

    Each `algebranets.nn.Linear` becomes a `algebranets.nn.QuantizedLinear`, over R too. An output tuple has one scale:
    the largest absolute value of its weights over 127. A weight changes by at most half of its scale. Inputs, outputs
    and biases keep their dtype. On a GPU, kernels for few rows read one byte for each number of a weight.

    Other layers stay as they are, such as convolutions, embeddings, recurrent layers, the projections of queries, keys
    and values in `algebranets.nn.MultiheadAttention`, and torch's own layers. Print the copy's report,
    ``model.quantization``, to see which layers were quantized and which were not. It raises a `ValueError` if no layer
    can be quantized, or if a weight has NaN or infinity.

    Args:
        model: The model. It is not changed.
        kind: What to quantize to: "int8".

    >>> import algebranets as an
    >>> model = an.nn.Sequential(an.nn.Linear(64, 64, algebra=an.M2R), an.nn.ReLU(), an.nn.Linear(64, 8, algebra=an.R))
    >>> small = an.quantize(model, "int8")
    >>> [type(layer).__name__ for layer in small]
    ['QuantizedLinear', 'ReLU', 'QuantizedLinear']
    >>> an.quantize(model, "int8").load_state_dict(small.state_dict())  # the layers of `model` may have any weights
    <All keys matched successfully>
    """
    checks.one_of("kind", kind, KINDS)
    chosen = {module: name for name, module in model.named_modules() if _can_be_quantized(module)}
    if not chosen:
        raise ValueError(_why_nothing_is_quantized(model))
    layers = {module: _quantized(module, name) for module, name in chosen.items()}
    # A deep copy takes what ``memo`` has for a module, so a layer that is used twice stays one.
    memo: dict[int, Any] = {id(module): layer for module, layer in layers.items()}
    made: Any = deepcopy(model, memo)
    made.quantization = Quantization(
        kind,
        tuple(name or type(model).__name__ for name in chosen.values()),
        tuple((name or type(made).__name__, type(module).__name__) for name, module in _kept(made)),
        sum(_bytes(module) for module in chosen),
        sum(_bytes(layer) for layer in layers.values()),
    )
    return made


def _can_be_quantized(module: nn.Module) -> TypeGuard[Linear]:
    """Whether the module is a linear layer. A subclass with a forward of its own computes something else."""
    return isinstance(module, Linear) and type(module).forward is Linear.forward


def _quantized(layer: Linear, name: str) -> QuantizedLinear:
    if any(is_lazy(parameter) for parameter in layer.parameters()):
        raise ValueError(f"{name or 'the layer'} has no weights yet: call the model once before you quantize it.")
    with torch.no_grad():
        try:
            weight = product.quantize(layer.weight, layer.algebra)
        except ValueError as error:
            raise ValueError(f"{name or 'the layer'} cannot be quantized: {error}") from None
        made = QuantizedLinear(weight, None if layer.bias is None else layer.bias.detach().clone(), layer.lowering)
    return made.train(layer.training)


def _kept(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The modules with matrices of their own that are not quantized, by name."""
    found = []
    for name, module in model.named_modules():
        own = [*module.parameters(recurse=False)]
        for originals in getattr(module, "parametrizations", {}).values():
            own += originals.parameters(recurse=False)
        is_parametrization = ".parametrizations." in f".{name}."
        if not isinstance(module, QuantizedLinear) and not is_parametrization:
            found += [(name, module)] * any(is_lazy(p) or p.dim() > 1 for p in own)
    return found


def _bytes(layer: nn.Module) -> int:
    return sum(parameter.nbytes for parameter in layer.parameters())


def _why_nothing_is_quantized(model: nn.Module) -> str:
    name = type(model).__name__
    if any(isinstance(module, QuantizedLinear) for module in model.modules()):
        return f"{name} is quantized already: use it as it is, or call quantize on the model that it was made from."
    kinds = ", ".join(dict.fromkeys(type(module).__name__ for _, module in _kept(model)))
    return (
        f"{name} has no layer that can be quantized: only algebranets.nn.Linear can. It has "
        f"{kinds or 'no weights'}. Quantize torch's own layers with torchao, or convert the model first "
        "(algebranets.convert)."
    )
