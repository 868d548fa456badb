"""The weights of a model over an algebra, and which of them are pruned by default."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from torch import Tensor, nn

from algebranets.algebra import Algebra  # noqa: F401  # in the annotations of the inherited fields of `Weight`
from algebranets.nn.weights import AlgebraWeight, algebra_weights


@dataclass(frozen=True, kw_only=True)
class Weight(AlgebraWeight):
    """A weight over an algebra, with its layer and its path in the model.

    Args:
        name: The name of the parameter in its layer.
        algebra: The algebra of the weight's tuples.
        stacks: How many weights are stacked along the first axis, such as the gates of a GRU.
        transposed: Whether the axes are (in, out), as in a transposed convolution, and not (out, in).
        num_inputs: The number of inputs that the weight is multiplied with, which is 2 in a bilinear layer.
        path: The name of the parameter in the model, such as ``stage1.0.conv1.weight``.
        layer: The layer that has the parameter.

    >>> import algebranets as an
    >>> (weight,) = weights(an.nn.Sequential(an.nn.Linear(8, 12, algebra=an.H)))
    >>> weight.path, weight.tuples(weight.stored).shape
    ('0.weight', torch.Size([4, 3, 2]))
    """

    path: str
    layer: nn.Module

    @property
    def stored(self) -> Tensor:
        """The weight that the layer uses, with masks applied."""
        return getattr(self.layer, self.name)


def weights(model: nn.Module) -> list[Weight]:
    """Return every weight over an algebra in a model, as declared by its layers in ``algebra_weights()``.

    Args:
        model: A model with layers of `algebranets.nn`, or with your own layers that have ``algebra_weights()``.

    >>> import algebranets as an
    >>> model = an.models.create("gru_lm", algebra="H", hidden_size=16, num_readouts=1)
    >>> [weight.path for weight in weights(model)]
    ['gru.weight_ih_l0', 'gru.weight_hh_l0', 'readouts.0.linear.weight', 'head.weight']
    """
    return [
        Weight(**vars(weight), path=f"{path}.{weight.name}" if path else weight.name, layer=layer)
        for path, layer in model.named_modules()
        for weight in algebra_weights(layer)
    ]


def prunable(model: nn.Module, only: str = "") -> list[Weight]:
    """Return the weights that a `Pruner` prunes: all but the first convolution and the last linear layer (Section 4.2).

    The layers of a `Lift` are real and are not pruned either.

    Args:
        model: The model to prune.
        only: A pattern of paths, such as ``stage2.*``. With a pattern, all weights that match it are pruned, the first
            convolution and the last linear layer included.

    >>> import algebranets as an
    >>> model = an.models.create("gru_lm", algebra="H", hidden_size=16, num_readouts=1)
    >>> [weight.path for weight in prunable(model)]
    ['gru.weight_ih_l0', 'gru.weight_hh_l0', 'readouts.0.linear.weight']
    >>> [weight.path for weight in prunable(model, "gru.*")]
    ['gru.weight_ih_l0', 'gru.weight_hh_l0']
    """
    found = weights(model)
    if only:
        chosen = [weight for weight in found if fnmatchcase(weight.path, only)]
        if not chosen:
            names = ", ".join(weight.path for weight in found) or "none"
            raise ValueError(f"layers must match some weights of {type(model).__name__}: {names}; got {only!r}.")
        return chosen
    convolutions = [weight.layer for weight in found if weight.stored.dim() > 2 and weight.num_inputs == 1]
    linears = [module for module in model.modules() if _is_linear(module)]
    spared = (*convolutions[:1], *linears[-1:])
    chosen = [weight for weight in found if not any(weight.layer is layer for layer in spared)]
    if not chosen:
        raise ValueError(
            f"{type(model).__name__} has no weight to prune: it must have layers of algebranets.nn besides a first "
            "convolution and a last linear layer, or layers= must say which."
        )
    return chosen


def _is_linear(module: nn.Module) -> bool:
    """Whether the module multiplies its input by one matrix: torch's linear layer, or one over an algebra."""
    match algebra_weights(module):
        case (AlgebraWeight(stacks=1) as weight,):
            return getattr(module, weight.name).dim() == 2
        case _:
            return isinstance(module, nn.Linear)
