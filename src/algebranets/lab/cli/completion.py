"""Values that the shell completes: names of algebras, models and recipes, found without importing torch."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from algebranets.algebra import ALIASES, CATALOGUE
from algebranets.lab import recorded


def algebras(incomplete: str) -> list[str]:
    """The algebras whose name starts with ``incomplete``.

    >>> algebras("M")
    ['M2R', 'M3R', 'M4R', 'M2C']
    """
    return _starting(incomplete, [*CATALOGUE, *ALIASES])


def algebra_lists(incomplete: str) -> list[str]:
    """Complete the last name of a list of algebras, separated by commas.

    >>> algebra_lists("R,DU")
    ['R,DUAL']
    """
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in _starting(last, CATALOGUE)]


def models(incomplete: str) -> list[str]:
    """The models whose name starts with ``incomplete``.

    >>> models("gru")
    ['gru_lm']
    """
    return _starting(incomplete, recorded.model_names())


def recipes(incomplete: str) -> list[str]:
    """The recipes whose name starts with ``incomplete``.

    >>> recipes("cifar")
    ['cifar10', 'cifar10-pruned', 'cifar100']
    """
    return _starting(incomplete, recorded.recipe_names())


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    """The names that start with ``incomplete``, except for names that must be quoted, such as ``diagonal(4)``."""
    return [name for name in names if name.startswith(incomplete) and shlex.quote(name) == name]
