"""Converts layers of complextorch, SpeechBrain and cliffordlayers to ours, with the same weights."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from algebranets.conversion.peers import cliffordlayers, complextorch, speechbrain
from algebranets.conversion.peers.cliffordlayers import from_cliffordlayers, signature_algebra
from algebranets.conversion.peers.complextorch import from_complextorch
from algebranets.conversion.peers.speechbrain import from_speechbrain
from algebranets.conversion.peers.wrappers import WRAPPERS, ChannelsLast, ComplexForms, ComplexTensors, ComponentsLast

__all__ = [
    "WRAPPERS",
    "ChannelsLast",
    "ComplexForms",
    "ComplexTensors",
    "ComponentsLast",
    "converted",
    "find",
    "from_cliffordlayers",
    "from_complextorch",
    "from_speechbrain",
    "obstacle",
    "signature_algebra",
]


def find(module: nn.Module) -> Callable[[nn.Module], nn.Module] | None:
    """Return the function that converts a module of another library, or None for all other modules.

    The function takes the module and returns its replacement, which computes the same with the same weights. It raises
    a `ValueError` with the reason if the module cannot be converted. Modules are recognized by the name of their class,
    so no library is imported. Subclasses are not recognized, because they may compute something else.

    Args:
        module: Any module.

    >>> import torch
    >>> find(torch.nn.Linear(3, 2, dtype=torch.cfloat)).__name__
    'from_complextorch'
    >>> find(torch.nn.Linear(3, 2)) is None
    True
    """
    for library, convert in (
        (complextorch, from_complextorch),
        (speechbrain, from_speechbrain),
        (cliffordlayers, from_cliffordlayers),
    ):
        if library.knows(module):
            return convert
    return None


def converted(module: nn.Module) -> nn.Module:
    """Return the replacement of a module of another library, or raise a `ValueError` if there is none.

    Args:
        module: A module for which `find` returns a function.

    >>> import torch
    >>> converted(torch.nn.Linear(3, 2, dtype=torch.cfloat)).layer
    Linear(in_features=6, out_features=4, bias=True, algebra=C)
    """
    convert = find(module)
    assert convert is not None, f"{type(module).__name__} is not of another library"
    return convert(module)


def obstacle(module: nn.Module) -> str:
    """Return why a module of another library cannot be converted, or "".

    Args:
        module: A module for which `find` returns a function.

    >>> import torch
    >>> layer = torch.nn.Linear(3, 2, dtype=torch.cfloat)
    >>> obstacle(layer)
    ''
    >>> handle = layer.register_forward_hook(print)
    >>> obstacle(layer)[:16]
    'Linear has hooks'
    """
    try:
        converted(module)
    except ValueError as error:
        return str(error).rstrip(".")
    return ""
