"""Decides which layers of a model are converted, what they become, and why the others stay real."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import nn

from algebranets import checks
from algebranets.conversion.calls import Calls, watch_calls
from algebranets.conversion.candidates import Candidate, candidates, size_problem
from algebranets.conversion.choice import Algebras, Chosen, choose, read_keep
from algebranets.conversion.flow import Flow, trace
from algebranets.conversion.flow.channels import Torn
from algebranets.conversion.inputs import Arguments, does_not_run, fresh
from algebranets.conversion.layers import Spec, build, core, weights_over_algebra
from algebranets.nn.boundary import MODES

HEADS = ("real", "tuple_norm")

#: For the id of each parameter: the names of the modules that have it, with its name in each module.
Owners = dict[int, list[tuple[str, str]]]


@dataclass(frozen=True)
class Boundary:
    """The options of `convert` for the first and the last layers.

    Args:
        keep: Which of them stay real: "first,last", "first", "last" or "none". None is the default of `read_keep`.
        lift: The mode of a Lift in front of a first layer that is converted, or None.
        head: "real", or "tuple_norm" for a last layer over the algebra with a TupleNorm after it.
    """

    keep: str | None = None
    lift: str | None = None
    head: str = "real"

    def __post_init__(self) -> None:
        if self.lift is not None:
            checks.one_of("lift", self.lift, MODES)
        checks.one_of("head", self.head, HEADS)
        read_keep(self.keep, self.lift, self.head)


@dataclass(frozen=True)
class Decision:
    """The result of `decide`: the new form of each converted layer, and the reasons for the others.

    Args:
        layers: All layers of a type that can be converted, by name.
        specs: What each converted layer becomes, by name.
        kept: Why each other layer stays real, by name.
        torn: The operations that take tuples apart.
    """

    layers: dict[str, Candidate]
    specs: dict[str, Spec]
    kept: dict[str, str]
    torn: tuple[Torn, ...]


def decide(model: nn.Module, algebra: Algebras, arguments: Arguments, boundary: Boundary) -> Decision:
    """Return what each layer of a model becomes. The model is run at least twice. It is not changed.

    Args:
        model: The model.
        algebra: An algebra, or algebras by the names of layers.
        arguments: The example inputs.
        boundary: What happens to the first and the last layers.
    """
    layers = candidates(model)
    names = {id(module): name for name, module in model.named_modules()}
    modules = {name: type(module).__name__ for name, module in model.named_modules()}
    aliases = {name: names[id(module)] for name, module in model.named_modules(remove_duplicate=False)}
    chosen = choose(algebra, layers, modules, aliases)
    args, kwargs = fresh(arguments)
    try:
        calls = watch_calls(model, args, kwargs, {name: layer.kind.computes for name, layer in layers.items()})
    except Exception as error:  # whatever the model raises for a wrong input
        raise ValueError(does_not_run(model, *arguments, error)) from error
    specs: dict[str, Spec] = {}
    kept: dict[str, str] = {}
    for name, layer in layers.items():
        spec, reason = _one(layer, chosen[name], calls, boundary)
        if spec is None or reason:
            kept[name] = reason
        else:
            specs[name] = spec
    flow = _settle(model, arguments, layers, specs, kept)
    _check(layers, chosen, specs, kept, calls, boundary)
    made = {name: _with_parts(spec, flow, name) for name, spec in specs.items()}
    return Decision(layers, made, kept, tuple(flow.torn))


def _one(layer: Candidate, chosen: Chosen, calls: Calls, boundary: Boundary) -> tuple[Spec | None, str]:
    """What a layer becomes if the other layers do not matter, or why it stays real."""
    name = layer.name
    if chosen.algebra is None:
        return None, chosen.reason
    if layer.reason:
        return None, layer.reason
    if name not in calls.count:
        return None, "its weight is read without a call" if name in calls.read else "it was not called"
    if layer.kind.exact:
        return Spec(core(build(layer.module, Spec(chosen.algebra))).algebra), ""  # type: ignore[arg-type]
    kept = frozenset[str]() if chosen.by_name else read_keep(boundary.keep, boundary.lift, boundary.head)
    is_first, is_last = name in calls.first, name == calls.last
    if is_first and "first" in kept:
        return None, "no layer comes before it (keep)"
    if is_last and "last" in kept:
        return None, "it makes the model's output (keep)"
    can_lift = is_first and layer.kind.num_axes is not None
    lift = boundary.lift if can_lift else None
    spec = Spec(chosen.algebra, lift=lift, head=boundary.head if is_last else "real")
    problem = size_problem(layer, spec)
    if problem and can_lift and lift is None:
        problem += "; lift='learned' puts a Lift in front of it"
    return spec, problem


def _settle(
    model: nn.Module, arguments: Arguments, layers: dict[str, Candidate], specs: dict[str, Spec], kept: dict[str, str]
) -> Flow:
    """Trace the model, and move layers from ``specs`` to ``kept`` until all others can be converted."""
    while True:
        args, kwargs = fresh(arguments)
        owners = _owners(model)
        _move(specs, kept, _tied(owners, layers, specs))
        traced = {name: spec.algebra for name, spec in specs.items() if not layers[name].kind.exact}
        flow = trace(model, args, kwargs, traced)
        against = {
            name: f"{reader or 'the model'} reads its weight without calling it"
            for name, reader in flow.bypassed.items()
            if name in specs and layers[name].kind.changes_parameters and not _shares(owners, layers[name], reader)
        }
        for name in specs:
            if name in flow.in_parts or name in flow.out_parts:
                spec = _with_parts(specs[name], flow, name)
                problem = size_problem(layers[name], spec) or _reordered(owners, layers[name], spec)
                if problem:
                    against.setdefault(name, problem)
        if not _move(specs, kept, against):
            return flow


def _move(specs: dict[str, Spec], kept: dict[str, str], reasons: Mapping[str, str]) -> bool:
    moved = [name for name in reasons if specs.pop(name, None) is not None]
    kept.update({name: reasons[name] for name in moved})
    return bool(moved)


def _with_parts(spec: Spec, flow: Flow, name: str) -> Spec:
    """The spec with its parts. A Lift makes planar tuples, and a TupleNorm reads planar tuples."""
    return replace(
        spec,
        in_parts=None if spec.lift else flow.in_parts.get(name),
        out_parts=None if spec.head == "tuple_norm" else flow.out_parts.get(name),
    )


def _owners(model: nn.Module) -> Owners:
    """The names of the modules that have each parameter, with its name in each module."""
    owners: Owners = defaultdict(list)
    for path, module in model.named_modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                owners[id(parameter)].append((path, key))
    return owners


def _shares(owners: Owners, layer: Candidate, other: str) -> bool:
    """Whether another module shares a parameter with a layer. `_tied` handles such layers."""
    return any(path == other for parameter in layer.module.parameters() for path, _ in owners[id(parameter)])


def _reordered(owners: Owners, layer: Candidate, spec: Spec) -> str:
    """Why a layer cannot write its channels in parts, or "". It cannot reorder a bias that another module shares."""
    bias = getattr(layer.module, "bias", None)
    others = [path for path, _ in owners[id(bias)] if path != layer.name]
    return (
        f"it shares its bias with {others[0]} and must write its channels in parts" if spec.out_parts and others else ""
    )


def _tied(owners: Owners, layers: dict[str, Candidate], specs: dict[str, Spec]) -> dict[str, str]:
    """The layers that cannot be converted because they share a weight with a layer that stays real, and the reasons."""
    tied: dict[str, str] = {}
    changed = True
    while changed:
        changed = False
        for name, spec in specs.items():
            other = None if name in tied else _in_the_way(layers[name], spec, owners, layers, specs, tied)
            if other is not None:
                tied[name] = f"it shares its weight with {other}"
                changed = True
    return tied


def _in_the_way(
    layer: Candidate,
    spec: Spec,
    owners: Owners,
    layers: Mapping[str, Candidate],
    specs: Mapping[str, Spec],
    tied: Mapping[str, str],
) -> str | None:
    """The name of a module that shares a weight with a layer and does not become the same layer, or None."""
    if layer.kind.exact:
        inside = {path for path, _ in layer.module.named_modules(prefix=layer.name)}
        paths = (path for parameter in layer.module.parameters() for path, _ in owners[id(parameter)])
        return next((path or "the model" for path in paths if path not in inside), None)
    for path, _, weight in weights_over_algebra(core(build(layer.module, spec, device="meta"))):
        parameter = getattr(layer.module.get_submodule(path), weight.name)
        for owner, key in owners[id(parameter)]:
            name = owner.removesuffix(path).rstrip(".") if path else owner
            if name == layer.name and key == weight.name:
                continue
            same = name in specs and name not in tied and specs[name] == spec and key == weight.name
            if not same or not _alike(layers[name].module, layer.module):
                return owner or "the model"
    return None


def _alike(one: nn.Module, other: nn.Module) -> bool:
    return type(one) is type(other) and getattr(one, "groups", 1) == getattr(other, "groups", 1)


def _check(
    layers: Mapping[str, Candidate],
    chosen: Mapping[str, Chosen],
    specs: Mapping[str, Spec],
    kept: Mapping[str, str],
    calls: Calls,
    boundary: Boundary,
) -> None:
    """Raise an error if a layer, Lift or head that was asked for is not converted, or if no layer is."""
    for name, reason in kept.items():
        if chosen[name].by_name and chosen[name].algebra is not None:
            raise ValueError(f"{name!r} cannot be converted: {reason}. Leave it out of the mapping, or map it to None.")
    if boundary.lift and not any(spec.lift for spec in specs.values()):
        why = "; ".join(f"{name or 'the model'}: {kept.get(name, 'it needs no Lift')}" for name in sorted(calls.first))
        raise ValueError(f"lift={boundary.lift!r} has no first layer to stand in front of ({why or 'none is called'}).")
    if boundary.head != "real" and not any(spec.head == boundary.head for spec in specs.values()):
        why = f"{calls.last}: {kept.get(calls.last, '')}" if calls.last is not None else "none is called"
        raise ValueError(f"head={boundary.head!r} needs a last layer that is converted ({why}).")
    if not any(layers[name].kind.computes for name in specs):
        raise ValueError(f"the conversion would change nothing. {_reasons(kept)}")


def _reasons(kept: Mapping[str, str]) -> str:
    if not kept:
        return "The model has no layer that can be converted, such as a Linear or a Conv2d."
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name, reason in kept.items():
        by_reason[reason].append(name or "(the model)")
    words = [f"{', '.join(n[:3])}{' and others' if len(n) > 3 else ''}: {reason}" for reason, n in by_reason.items()]
    return f"Layers stay real for these reasons: {'; '.join(words[:6])}."
