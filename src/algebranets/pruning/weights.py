"""Which weights of a model can be pruned, and which are by rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torch import Tensor, nn

from algebranets import nn as ann
from algebranets import product
from algebranets.algebra import Algebra
from algebranets.nn.linear import Linear, Weighted
from algebranets.product.cells import MODES

_RECURRENT = ann.RNN | ann.LSTM | ann.GRU | ann.RNNCell | ann.LSTMCell | ann.GRUCell


@dataclass(frozen=True)
class Weight:
    """One weight over an algebra: the parameter ``name`` of a layer, which is ``path`` in its model."""

    path: str
    layer: nn.Module
    name: str
    algebra: Algebra
    transposed: bool = False
    stacks: int = 1

    @property
    def stored(self) -> Tensor:
        """As the layer has it, masks applied."""
        return getattr(self.layer, self.name)

    def tuples(self, stored: Tensor) -> Tensor:
        """``stored`` as (component, first, second, ...)."""
        return product.weight_tuples(stored, self.algebra, self.transposed, self.stacks)

    def from_tuples(self, tuples: Tensor) -> Tensor:
        """The inverse of `tuples`."""
        return product.weight_from_tuples(tuples, self.algebra, self.transposed, self.stacks)


def weights(model: nn.Module) -> list[Weight]:
    """Every weight of `algebranets.nn`'s layers: linear, convolutional, recurrent, and attention's projections.

    >>> import algebranets as an
    >>> model = an.models.create("gru_lm", algebra="H", hidden_size=16, num_readouts=1)
    >>> [weight.path for weight in weights(model)]
    ['gru.weight_ih_l0', 'gru.weight_hh_l0', 'readouts.0.linear.weight', 'head.weight']
    """
    return [weight for path, layer in model.named_modules() for weight in _of_layer(path, layer)]


def prunable(model: nn.Module, only: str = "") -> list[Weight]:
    """What is pruned by rule: all but the first convolution and the last linear layer (Section 4.2).

    Nor is the Lift, whose layers are real ones. ``only`` is a pattern of paths, such as ``stage2.*``, in place of the
    rule: all weights that match are pruned.
    """
    found = weights(model)
    if only:
        chosen = [weight for weight in found if fnmatchcase(weight.path, only)]
        if not chosen:
            names = ", ".join(weight.path for weight in found) or "none"
            raise ValueError(f"layers must match some weights of {type(model).__name__}: {names}; got {only!r}.")
        return chosen
    layers = [weight.layer for weight in found if isinstance(weight.layer, Weighted)]
    convolutions = [layer for layer in layers if not isinstance(layer, Linear)]
    linears = [module for module in model.modules() if isinstance(module, Linear | nn.Linear)]
    spared = (*convolutions[:1], *linears[-1:])
    chosen = [weight for weight in found if not any(weight.layer is layer for layer in spared)]
    if not chosen:
        raise ValueError(
            f"{type(model).__name__} has no weight to prune: it must have layers of algebranets.nn besides a first "
            "convolution and a last linear layer, or layers= must say which."
        )
    return chosen


def _of_layer(path: str, layer: nn.Module) -> Iterator[Weight]:
    def weight(name: str, **facts: int) -> Weight:
        return Weight(f"{path}.{name}" if path else name, layer, name, layer.algebra, **facts)  # type: ignore[arg-type]

    if isinstance(layer, Weighted):
        yield weight("weight", transposed=layer.transposed)
    elif isinstance(layer, _RECURRENT):
        gates = MODES[layer.mode].num_gates
        for name in layer.weight_names:
            yield weight(name, stacks=1 if name.startswith("weight_hr") else gates)
    elif isinstance(layer, ann.MultiheadAttention):
        for name in layer.weight_names:
            yield weight(name, stacks=3 if name == "in_proj_weight" else 1)
