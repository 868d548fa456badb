"""Reads the arguments of `convert` that choose the algebra of each layer and the layers to keep."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from algebranets import algebra as algebras
from algebranets import checks
from algebranets.algebra import Algebra, R

#: The second argument of `convert`: an algebra for all layers, or algebras by name of layer. None keeps layers real.
Algebras = Algebra | str | Mapping[str, Algebra | str | None]

_REGEX = "re:"


@dataclass(frozen=True)
class Chosen:
    """The decision for one layer.

    Args:
        algebra: The algebra of the layer, or None if the layer stays real.
        reason: Why the layer stays real, or "" if it does not.
        by_name: Whether the mapping names exactly this layer. Such a choice takes precedence over ``keep``.
    """

    algebra: Algebra | None
    reason: str = ""
    by_name: bool = False


def choose(
    given: Algebras, layers: Iterable[str], modules: Mapping[str, str], aliases: Mapping[str, str] | None = None
) -> dict[str, Chosen]:
    """Return the choice for each layer.

    Names of modules take precedence. If several of them match, because one names a module inside another, the longest
    one decides. Then come regular expressions, in the order of the mapping, and then "*".

    Args:
        given: An algebra, or a mapping from patterns to algebras or None. A pattern is the name of a module, "re:" and
            a regular expression that must match the whole name of a layer, or "*" for all other layers. The name of a
            module that contains layers matches all of them. Names match at dots: "layers.1" does not match "layers.10".
        layers: The names of the layers that can be converted.
        modules: The class names of all modules of the model, by name.
        aliases: The first name of each module of the model, by each of its names.

    >>> chosen = choose({"a": None, "re:b.*": "C", "*": "H"}, ["a.0", "b.0", "c.0"], {})
    >>> {name: choice.algebra and choice.algebra.name for name, choice in chosen.items()}
    {'a.0': None, 'b.0': 'C', 'c.0': 'H'}
    """
    names = list(layers)
    if not isinstance(given, Mapping):
        algebra = _algebra(given, "the algebra")
        return {name: Chosen(algebra) for name in names}
    if not given:
        raise ValueError("the mapping of names to algebras is empty: write {'*': 'H'} to convert all layers to H.")
    rules = {pattern: _rule(pattern, value) for pattern, value in given.items()}
    for pattern in rules:
        if not any(_matches(pattern, name) for name in names):
            first = (aliases or {}).get(pattern, pattern)
            if first != pattern:
                raise ValueError(f"{pattern!r} is the same module as {first!r}: use this name in the mapping.")
            raise ValueError(_no_match(pattern, names, modules))
    return {name: _chosen(name, rules) for name in names}


def read_keep(keep: str | None, lift: str | None, head: str) -> frozenset[str]:
    """Return which of "first" and "last" are kept real.

    Args:
        keep: The argument of `convert`. None means "first,last", but without "first" if ``lift`` is given, and
            without "last" if ``head`` is not "real".
        lift: The mode of the Lift in front of the first layer, or None for no Lift.
        head: What the last layer becomes: "real" or "tuple_norm".

    >>> sorted(read_keep(None, None, "tuple_norm"))
    ['first']
    """
    if keep is None:
        return frozenset({"first"} - ({"first"} if lift else set())) | frozenset({"last"} if head == "real" else set())
    if not isinstance(keep, str):
        raise ValueError(f"keep must be text such as 'first,last', 'first', 'last' or 'none'; got {keep!r:.80}.")
    words = [word for word in (part.strip() for part in keep.split(",")) if word]
    for word in words:
        checks.one_of("keep", word, ("first", "last", "none"))
    if "none" in words and len(words) > 1:
        raise ValueError(f"keep must be 'none' alone, or name the layers to keep; got {keep!r:.80}.")
    kept = frozenset(words) - {"none"}
    if lift and "first" in kept:
        raise ValueError(f"lift={lift!r} needs the first layer to be converted: leave 'first' out of keep={keep!r}.")
    if head != "real" and "last" in kept:
        raise ValueError(f"head={head!r} needs the last layer to be converted: leave 'last' out of keep={keep!r}.")
    return kept


def _rule(pattern: object, value: Algebra | str | None) -> Algebra | None:
    if not isinstance(pattern, str) or not pattern:
        raise ValueError(
            f"the mapping's keys must be names of modules, 're:...' or '*'; got {pattern!r:.80}. For a model that is "
            "itself a layer, write '*'."
        )
    if pattern.startswith(_REGEX):
        try:
            re.compile(pattern.removeprefix(_REGEX))
        except re.error as error:
            raise ValueError(f"{pattern!r} must be 're:' and a regular expression: {error}.") from None
    return None if value is None else _algebra(value, repr(pattern))


def _algebra(value: object, where: str) -> Algebra:
    if not isinstance(value, Algebra | str):
        raise ValueError(f"{where} must be an Algebra, a name such as 'M2R' or, in a mapping, None; got {value!r:.80}.")
    found = algebras.get(value)
    if found.terms == R.terms:
        raise ValueError(
            "a layer over R is the real layer that the model has already: choose another algebra, or None in a mapping "
            "to keep a layer real."
        )
    return found


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith(_REGEX):
        return re.fullmatch(pattern.removeprefix(_REGEX), name) is not None
    return pattern == "*" or name == pattern or name.startswith(f"{pattern}.")


def _chosen(name: str, rules: Mapping[str, Algebra | None]) -> Chosen:
    found = [pattern for pattern in rules if _matches(pattern, name)]
    exact = [pattern for pattern in found if pattern != "*" and not pattern.startswith(_REGEX)]
    regexes = [pattern for pattern in found if pattern.startswith(_REGEX)]
    if not found:
        return Chosen(None, "no pattern names it")
    pattern = max(exact, key=len) if exact else regexes[0] if regexes else "*"
    reason = f"kept by {pattern!r}" if rules[pattern] is None else ""
    return Chosen(rules[pattern], reason, by_name=pattern == name)


def _no_match(pattern: str, names: list[str], modules: Mapping[str, str]) -> str:
    if not names:
        return "the model has no layer that can be converted, such as a Linear or a Conv2d."
    if pattern in modules:
        whole = next((name for name in names if pattern.startswith(f"{name}.")), None)
        if whole is not None:
            return f"{pattern!r} is a part of {whole!r}, which is converted as a whole: name {whole!r} instead."
        return f"{pattern!r} is a {modules[pattern]}, and neither is nor contains a layer that can be converted."
    parents = {name.rsplit(".", depth)[0] for name in names for depth in range(1, name.count(".") + 1)}
    hint = "" if pattern.startswith(_REGEX) else checks.did_you_mean(pattern, [*names, *sorted(parents)])
    return (
        f"the pattern {pattern!r} matches no layer that can be converted.{hint} The model has {len(names)} of them, "
        f"such as {', '.join(map(repr, names[:3]))}."
    )
