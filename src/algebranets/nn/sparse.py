"""Sparse layers, which store only nonzero tuples, and `sparse`, which makes them from pruned layers.

>>> import torch, algebranets as an
>>> from algebranets.pruning import Pruner
>>> model = an.nn.Sequential(*(an.nn.Linear(64, 64, algebra=an.M2R) for _ in range(3)))
>>> pruner = Pruner(model, target=0.9)
>>> pruner.step()
>>> pruner.finish()
>>> small = an.sparse(model)
>>> small
Sequential(
  (0): SparseLinear(in_features=64, out_features=64, bias=True, sparsity=0.90, algebra=M2R)
  (1): SparseLinear(in_features=64, out_features=64, bias=True, sparsity=0.90, algebra=M2R)
  (2): Linear(in_features=64, out_features=64, bias=True, algebra=M2R)
)
>>> again = an.sparse(model, state=small.state_dict())  # or the tensors of a safetensors file
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, TypeGuard, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from algebranets.nn.conv import Conv1d, Conv2d, Conv3d
from algebranets.nn.layer import Layer
from algebranets.nn.linear import Linear
from algebranets.ops.device import is_transformed, records_gradients
from algebranets.product import in_format_of
from algebranets.product import sparse as product
from algebranets.product.compressed import TupleSparse, assemble, compress, expand

#: The share of a layer's tuples that must be zero for `sparse` to convert it.
MIN_SPARSITY = 0.7

ModelT = TypeVar("ModelT", bound=nn.Module)


class SparseLinear(Layer):
    """A linear layer over an algebra that stores and multiplies only nonzero tuples. It is for inference only.

    The weight gets no gradients. `algebranets.sparse` makes it from a pruned `algebranets.nn.Linear`.

    Args:
        weight: The nonzero tuples and their positions.
        bias: The bias, one number for each output feature, or None.
        keep_dense: Whether to keep the dense weight too, as in `algebranets.sparse`. It is made when it is first used.
            A change of ``values`` is noticed, except one through ``values.data`` in place.

    >>> import torch, algebranets as an
    >>> dense = an.nn.Linear(8, 8, algebra=an.H)
    >>> dense.weight_tuples = torch.eye(2).expand(4, 2, 2)
    >>> layer = an.sparse(dense, at_least=0.5)
    >>> layer
    SparseLinear(in_features=8, out_features=8, bias=True, sparsity=0.50, algebra=H)
    >>> x = torch.randn(3, 8)
    >>> torch.allclose(layer(x), dense(x), atol=1e-6)
    True
    """

    # The parts of a `TupleSparse`. ``maps`` and ``dense`` are not saved: they are made from the others.

    starts: Tensor
    indices: Tensor
    maps: Tensor
    dense: Tensor | None

    def __init__(self, weight: TupleSparse, bias: Tensor | None, keep_dense: bool = False) -> None:
        super().__init__()
        self.algebra, self.longest = weight.algebra, weight.longest
        self.in_features = weight.num_in * weight.algebra.dim
        self.out_features = weight.num_out * weight.algebra.dim
        self.register_buffer("starts", weight.starts)
        self.register_buffer("indices", weight.indices)
        self.register_buffer("maps", weight.maps, persistent=False)
        self.values = nn.Parameter(weight.values, requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        self.register_buffer("dense", None, persistent=False)
        self.keep_dense = keep_dense
        #: The place and version of the values that ``dense`` was made from.
        self._expanded: tuple[int, int] | None = None

    @property
    def weight(self) -> TupleSparse:
        """The nonzero tuples and their positions."""
        num_in = self.in_features // self.algebra.dim
        parts = (self.starts, self.indices, self.values, self.maps)
        return TupleSparse(*parts, num_in, self.longest, self.algebra)

    def forward(self, x: Float[Tensor, "*batch inp"], activation: str | None = None) -> Float[Tensor, "*batch out"]:
        """Apply the layer to the last axis of ``x``.

        Args:
            x: The input, ``in_features`` real numbers on the last axis.
            activation: An activation to apply to the output: "relu", "silu", "gelu", "sigmoid" or "tanh".
        """
        return product.linear(x, self._weight_with_dense(), self.bias, activation)

    def _weight_with_dense(self) -> TupleSparse:
        """The weight, with the dense one if it is kept. If the values have changed, the dense one is made again.

        A graph could not check for changes, and values that were made in inference mode have no version to check.
        """
        weight, values = self.weight, self.values
        is_graph = torch.compiler.is_compiling() or torch.jit.is_tracing() or is_transformed()
        if not self.keep_dense or is_graph or values.is_inference() or records_gradients(values):
            return weight
        version = values.data_ptr(), values._version
        if self.dense is None or self._expanded != version:
            with torch.inference_mode(False), torch.no_grad():
                self.dense, self._expanded = nn.Buffer(expand(weight), persistent=False), version
        return replace(weight, dense=self.dense)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"sparsity={self.weight.sparsity:.2f}, {'keep_dense=True, ' * self.keep_dense}algebra={self.algebra.name}"
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Load a weight with any number of tuples. Check it before changing anything."""
        names = ("starts", "indices", "values")
        parts = {name: state_dict.get(prefix + name, getattr(self, name)) for name in names}
        holds = any(prefix + name in state_dict for name in names) and not self._other_algebra(state_dict, prefix)
        made = None if not holds or any(part.is_meta for part in parts.values()) else self._assembled(prefix, **parts)
        for own, part in ((self.indices, parts["indices"]), (self.values, parts["values"])):
            if holds and own.shape != part.shape:
                own.data = own.data.new_empty(part.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)
        if made is not None and not self.starts.is_meta:
            self.maps, self.longest = made.maps.to(self.starts.device), made.longest
            self.dense = None

    def _change_basis(self, state_dict: dict[str, Any], prefix: str) -> str | None:
        if (values := state_dict.get(f"{prefix}values")) is not None and self.algebra.change is not None:
            state_dict[f"{prefix}values"] = values @ values.new_tensor(self.algebra.change.weights).mT
        return None

    def _assembled(self, prefix: str, starts: Tensor, indices: Tensor, values: Tensor) -> TupleSparse:
        """Return the weight in a state dict, or raise an error that says what is wrong with it."""
        try:
            if starts.shape != self.starts.shape:
                raise ValueError(f"starts must have shape {tuple(self.starts.shape)}; got {tuple(starts.shape)}.")
            if not values.is_floating_point():
                raise ValueError(f"values must be floating-point numbers; got {values.dtype}.")
            return assemble(starts, indices, values, self.weight.num_in, self.algebra)
        except ValueError as error:
            raise ValueError(f"the sparse weight {prefix.rstrip('.') or 'of this layer'}: {error}") from None


class SparseConv(nn.Module):
    """A 1 x 1 convolution that stores and multiplies only nonzero tuples. It is for inference only.

    `algebranets.sparse` makes it from a pruned convolution with kernel size 1.

    Args:
        linear: The linear layer that is applied at each position.
        stride: The stride, one number for each spatial axis.

    >>> import torch, algebranets as an
    >>> dense = an.nn.Conv2d(8, 8, 1, stride=2, algebra=an.H)
    >>> dense.weight_tuples = torch.eye(2).expand(4, 2, 2)[..., None, None]
    >>> an.sparse(dense, at_least=0.5)(torch.randn(1, 8, 6, 6)).shape
    torch.Size([1, 8, 3, 3])
    """

    def __init__(self, linear: SparseLinear, stride: tuple[int, ...]) -> None:
        super().__init__()
        self.linear, self.stride = linear, stride

    def forward(self, x: Tensor) -> Tensor:
        batched = x if x.dim() == len(self.stride) + 2 else x[None]
        visited = tuple(slice(None, None, step) for step in self.stride)
        seen = batched[(slice(None), slice(None), *visited)]
        y = self.linear(seen.movedim(1, -1)).movedim(-1, 1)
        y = in_format_of(batched, y) if batched.stride(1) == 1 else y.contiguous()
        return y if batched is x else y[0]

    def extra_repr(self) -> str:
        return f"stride={self.stride}"


def sparse(
    model: ModelT,
    at_least: float = MIN_SPARSITY,
    *,
    state: Mapping[str, Tensor] | None = None,
    keep_dense: bool = False,
) -> ModelT:
    """Return a copy of a model whose pruned linear layers and 1 x 1 convolutions store only nonzero tuples.

    It raises a `ValueError` if no layer becomes sparse.

    Args:
        model: The model. Tuples that a `Pruner` masks count as zero.
        at_least: A layer becomes sparse if at least this share of its weight's tuples is zero.
        state: The ``state_dict`` of a sparse copy of the same model. With it, exactly the layers that are sparse in
            ``state`` become sparse, regardless of ``at_least``, and all parameters are loaded from ``state``.
        keep_dense: Whether sparse layers keep their dense weights too, in memory and not in state dicts. Inputs of many
            rows are multiplied by these if that is faster. Compiled graphs do not use them.

    >>> import algebranets as an
    >>> from algebranets.pruning import Pruner
    >>> model = an.nn.Sequential(*(an.nn.Linear(64, 64, algebra=an.M2R) for _ in range(2)))
    >>> Pruner(model, target=0.9).finish()
    >>> [type(layer).__name__ for layer in an.sparse(model)]  # the last layer is not pruned
    ['SparseLinear', 'Linear']
    """
    if not 0 < at_least <= 1:
        raise ValueError(f"at_least must lie between 0 and 1, as the share of tuples that are zero; got {at_least}.")
    done: dict[nn.Module, nn.Module] = {}
    made = _converted(deepcopy(model), "", _Choice(at_least, state, keep_dense), done)
    if all(module is replacement for module, replacement in done.items()):
        raise ValueError(_why_nothing_is_sparse(model, at_least, state is not None))
    if state is not None:
        _load(made, state)
    return made  # type: ignore[return-value]


def _why_nothing_is_sparse(model: nn.Module, at_least: float, has_state: bool) -> str:
    """Return the error message of `sparse` for a model in which no layer became sparse."""
    name = type(model).__name__
    if any(isinstance(module, SparseLinear) for module in model.modules()):
        return f"{name} is sparse already: use it as it is, or call sparse on the dense model."
    layers = [(path or name, layer) for path, layer in model.named_modules() if _can_become_sparse(layer)]
    shares = {path: _compressed(layer).sparsity for path, layer in layers}
    if not shares:
        return (
            f"{name} has no layer that can become sparse: only Linear and 1 x 1 convolutions of algebranets.nn can, if "
            "they have no groups and no padding. Other layers stay dense."
        )
    if has_state:
        return (
            f"state must be the state_dict of a sparse copy of {name}, but it contains no sparse layer. Load the "
            "state_dict of a dense model with load_state_dict."
        )
    sparsest = max(shares, key=lambda path: shares[path])
    return (
        f"no layer of {name} became sparse: at_least={at_least:g} of a layer's tuples must be zero, but the sparsest "
        f"layer, {sparsest}, has {shares[sparsest]:.4g}. Prune the model first (algebranets.pruning.Pruner), or lower "
        "at_least."
    )


def _load(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load a state dict. A tensor that the model has under several names may be missing under some of them.

    safetensors files store such a tensor only once.
    """
    missing, unexpected = model.load_state_dict(state, strict=False)
    own = model.state_dict()
    there = {own[name].data_ptr() for name in state if name in own}
    absent = [name for name in missing if own[name].data_ptr() not in there]
    if absent or unexpected:
        raise ValueError(
            f"state must be that of a sparse {type(model).__name__} like this one; it lacks {absent or 'nothing'}, and "
            f"unexpected is {unexpected or 'nothing'}."
        )


@dataclass(frozen=True)
class _Choice:
    """Which layers become sparse, and whether they keep their dense weights: the arguments of `sparse`."""

    at_least: float
    state: Mapping[str, Tensor] | None
    keep_dense: bool


def _converted(module: nn.Module, path: str, choice: _Choice, done: dict[nn.Module, nn.Module]) -> nn.Module:
    """Return the sparse layer that replaces a module, or the module itself with its children converted.

    ``done`` maps modules to their replacements, so that a module that is used twice is converted once.
    """
    if module not in done:
        done[module] = made = _sparse_layer(module, path, choice) or module
        if made is module:
            for name, child in module._modules.items():
                if child is not None:
                    module._modules[name] = _converted(child, f"{path}{name}.", choice, done)
    return done[module]


def _sparse_layer(module: nn.Module, path: str, choice: _Choice) -> SparseLinear | SparseConv | None:
    """Return the sparse layer that replaces a module, or None if the module stays as it is."""
    if not _can_become_sparse(module):
        return None
    values = path + ("values" if isinstance(module, Linear) else "linear.values")
    if choice.state is not None and values not in choice.state:
        return None
    weight = _compressed(module)
    if choice.state is None and weight.sparsity < choice.at_least:
        return None
    bias = None if module.bias is None else module.bias.detach().clone()
    linear = SparseLinear(weight, bias, choice.keep_dense)
    return linear if isinstance(module, Linear) else SparseConv(linear, module.stride)


def _can_become_sparse(module: nn.Module) -> TypeGuard[Linear | Conv1d | Conv2d | Conv3d]:
    """Whether the module is a linear layer over an algebra, or a convolution that is one at each position.

    A subclass with a forward of its own computes something else, so it stays dense.
    """
    if type(module).forward not in (Linear.forward, Conv1d.forward, Conv2d.forward, Conv3d.forward):
        return False
    if not isinstance(module, Conv1d | Conv2d | Conv3d):
        return isinstance(module, Linear)
    padding = ("same", "valid", (0,) * module.num_axes)
    return module.groups == 1 and set(module.kernel_size) == {1} and module.padding in padding


def _compressed(layer: Linear | Conv1d | Conv2d | Conv3d) -> TupleSparse:
    with torch.no_grad():
        stored = layer.weight
        return compress(stored.reshape(stored.shape[:2]), layer.algebra)
