"""Which layers of a model can be converted, and why the others cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize

from algebranets import nn as ann
from algebranets.conversion import peers
from algebranets.conversion.layers import Kind, Spec, build, lookup


@dataclass(frozen=True)
class Candidate:
    """A layer of a type that can be converted.

    Args:
        name: Its name in the model.
        module: The layer.
        kind: How it is converted.
        reason: Why it cannot be converted, or "".
    """

    name: str
    module: nn.Module
    kind: Kind
    reason: str


def candidates(model: nn.Module) -> dict[str, Candidate]:
    """Return the layers of a model whose type can be converted, by name. A layer with several names is listed once.

    Args:
        model: The model.

    >>> list(candidates(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.MultiheadAttention(8, 2))))
    ['0', '2']
    """
    found: dict[str, Candidate] = {}
    inside: set[int] = set()
    for name, module in model.named_modules():
        if id(module) in inside or isinstance(module, ann.Layer):
            inside.update(map(id, module.modules()))
            continue
        base, kind = lookup(module)
        if kind is None or not kind.applies(module):
            continue
        if kind.children is not None:
            if _own_forward(module, base) or not _has_children(module, kind.children):
                continue  # its children are candidates of their own
            inside.update(map(id, module.modules()))
        reason = peers.obstacle(module) if kind.exact else _obstacle(module, base)
        if not reason and kind.computes and kind.changes_parameters and not kind.exact and _is_frozen(module):
            reason = "its weight is frozen (requires_grad=False), and a new one would stay random"
        found[name] = Candidate(name, module, kind, reason)
    return found


def check_model(model: Any) -> None:
    """Raise an error if the model is not a torch model whose layers can be replaced.

    Args:
        model: The argument of `convert`.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"the model must be a torch.nn.Module; got a {type(model).__name__}.")
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(f"{name or 'the model'} is a TorchScript module, whose layers cannot be replaced.")
        if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():  # type: ignore[misc]
            raise ValueError(
                f"{name or 'the model'} is a lazy layer without weights: run the model once, then convert."
            )
        if "_orig_mod" in module._modules:
            raise ValueError(f"{name or 'the model'} is compiled: convert the model first, then call torch.compile.")


def size_problem(candidate: Candidate, spec: Spec) -> str:
    """Return why a layer of this size cannot be converted, or "".

    Args:
        candidate: The layer.
        spec: What it would become.

    >>> import algebranets as an
    >>> layer = candidates(nn.Sequential(nn.Conv2d(3, 8, 3)))["0"]
    >>> size_problem(layer, Spec(an.H)), size_problem(layer, Spec(an.H, lift="learned"))
    ('in_channels=3 is not a multiple of 4', '')
    """
    old, kind, dim = candidate.module, candidate.kind, spec.algebra.dim
    if (spec.lift or spec.head != "real") and kind.num_axes is None:
        return f"a {type(old).__name__} cannot have a Lift or a TupleNorm"
    for name in kind.sizes:
        size = getattr(old, name)
        factor = spec.in_factor if name.startswith(("in", "nx")) else spec.out_factor
        if size * factor % dim:
            return f"{name}={size} is not a multiple of {dim}"
    try:
        build(old, spec, device="meta")
    except ValueError as error:
        return str(error).split(". ")[0].rstrip(".")
    return ""


def _has_children(module: nn.Module, children: tuple[tuple[str, type], ...]) -> bool:
    return all(type(getattr(module, name, None)) is kind for name, kind in children)


def _own_forward(module: nn.Module, base: type) -> bool:
    """Whether a layer may compute something else than the class that it is derived from."""
    names = ("forward", "_conv_forward", "__call__")
    changed = any(getattr(type(module), name, None) is not getattr(base, name, None) for name in names)
    return changed or any(name in vars(module) for name in names)


def _obstacle(module: nn.Module, base: type) -> str:
    """Why a layer cannot be converted over any algebra, or ""."""
    for part in module.modules():
        if parametrize.is_parametrized(part):
            return "it is parametrized"
        if any(getattr(part, hooks) for hooks in _HOOKS):
            return "it has hooks"
        for name, parameter in part.named_parameters(recurse=False):
            if type(parameter) is not nn.Parameter or type(parameter.data) is not Tensor:
                return f"its {name} is a {type(parameter).__name__}, not a plain parameter"
            if not parameter.is_floating_point():
                return f"its {name} holds numbers of type {parameter.dtype}".replace("torch.", "")
    if _own_forward(module, base):
        return f"{type(module).__name__} has its own forward, different from {base.__name__}'s"
    return ""


def _is_frozen(module: nn.Module) -> bool:
    return any(parameter.dim() > 1 and not parameter.requires_grad for parameter in module.parameters())


_HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks",
    "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip
