"""`trace`, which runs a model once and finds the parts of its layers' channel axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from algebranets.algebra import Algebra
from algebranets.conversion.flow.channels import Torn
from algebranets.conversion.flow.following import Follower
from algebranets.conversion.parts import Parts
from algebranets.nn.mode import evaluating


@dataclass(frozen=True)
class Flow:
    """The parts of the channel axes of a model's layers, and the operations that take tuples apart.

    Args:
        in_parts: The parts of the input of each layer that reads more than one part.
        out_parts: The parts of the output of each layer that must write more than one part.
        torn: Operations that take tuples apart, even with these parts.
        bypassed: Layers whose weights are read by another module, with the name of that module.
    """

    in_parts: Mapping[str, Parts]
    out_parts: Mapping[str, Parts]
    torn: tuple[Torn, ...]
    bypassed: Mapping[str, str]


def trace(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], layers: Mapping[str, Algebra]) -> Flow:
    """Run a real model once, and find the parts that its layers must read and write so that tuples stay whole.

    The model runs in evaluation mode and without gradients.

    Args:
        model: A real model.
        args: The positional arguments of the call.
        kwargs: The keyword arguments of the call.
        layers: The algebra that each layer will have, by the layer's name.

    >>> import algebranets as an
    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(24, 8)
    ...     def forward(self, x):
    ...         return self.c(torch.cat([self.a(x), self.b(x)], -1))
    >>> trace(Net(), (torch.zeros(1, 8),), {}, {"a": an.H, "b": an.H, "c": an.H}).in_parts
    {'c': (8, 16)}
    """
    follower = Follower(model, {name: algebra.dim for name, algebra in layers.items()})
    with evaluating(model), torch.no_grad(), follower:
        model(*args, **kwargs)
    solution = follower.channels.solve()
    # A norm leaves each channel where it is, so its output has the parts of its input.
    norms = [name for name in solution.in_parts if isinstance(model.get_submodule(name), nn.GroupNorm)]
    out_parts = {**solution.out_parts, **{name: solution.in_parts[name] for name in norms}}
    return Flow(solution.in_parts, out_parts, solution.torn, follower.bypassed)
