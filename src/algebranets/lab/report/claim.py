"""The comparison that tests the paper's claim: M2(R) with R at equal multiply-adds and at equal parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

from algebranets.lab.report.group import COSTS, Group
from algebranets.lab.report.numbers import difference, share
from algebranets.lab.report.paper.rows import SIZES
from algebranets.lab.report.parts import mean_and_deviation
from algebranets.lab.report.significance import is_significant, standard_error
from algebranets.lab.report.study import Study

#: The algebra of the paper's claim.
CLAIMED = "M2R"
#: Two costs are called equal if they differ by at most this factor.
_EQUAL = 1.1


@dataclass(frozen=True)
class Pair:
    """A network over an algebra, and the real network that it is compared with.

    Args:
        ours: The network over an algebra.
        real: The real network.
        equal: The cost in which they are equal, a key of `COSTS`; None if there is no such cost.
    """

    ours: Group
    real: Group
    equal: str | None = None

    def share(self, cost: str) -> float:
        """The cost of our network in terms of that of the real network."""
        return float(getattr(self.ours.first, cost) / getattr(self.real.first, cost))

    def distance(self, cost: str) -> float:
        """How far the two costs are apart, on a logarithmic scale."""
        return abs(math.log(self.share(cost)))

    def is_equal(self, cost: str) -> bool:
        """Whether the two costs differ by at most 10 %."""
        return self.distance(cost) <= math.log(_EQUAL)


def pairs(study: Study) -> list[Pair]:
    """The pairs of networks by which the study is judged; empty if R or all other algebras are missing.

    There is one pair for each cost in which a network of the claim's algebra and a real network are equal. If several
    networks are, the pair is chosen by size alone, whatever the quality: one with networks of the recipe's own size, or
    else the largest. If no networks are equal in any cost, the only pair is that of the recipe's own size or, if it was
    not trained, of the two networks that are nearest in both costs. If the claim's algebra was not trained, the first
    other algebra of the catalogue takes its place.

    >>> from pathlib import Path
    >>> from algebranets.lab.report.study import studies
    >>> from algebranets.lab.train import results
    >>> (study,) = studies(results.read([Path("results/gru-short.jsonl")]))
    >>> [(pair.equal, study.name(pair.ours), study.name(pair.real)) for pair in pairs(study)]
    [('multiplies', 'M2R x1.375', 'R'), ('parameters', 'M2R', 'R x0.5')]
    """
    others = [group for group in study.finished if not group.is_real]
    algebra = next((group.algebra for group in others if group.algebra == CLAIMED), others[0].algebra if others else "")
    ours = plain(study, (group for group in others if group.algebra == algebra))
    reals = plain(study, (group for group in study.finished if group.is_real))
    if not ours or not reals:
        return []
    found = []
    for cost in reversed(COSTS):
        equal = [pair for pair in (Pair(*both, cost) for both in product(ours, reals)) if pair.is_equal(cost)]
        found += sorted(equal, key=lambda pair: _rank(study, pair, cost))[:1]
    return found or [min((Pair(*both) for both in product(ours, reals)), key=lambda pair: _misfit(study, pair))]


def facts(study: Study, pair: Pair) -> dict[str, Any]:
    """Values about a pair, for the headline and the key figures."""
    ours, real = pair.ours, pair.real
    return {
        "name": study.name(ours),
        "algebra": ours.algebra,
        "mean": ours.mean,
        "spread": mean_and_deviation(ours),
        "real": {"name": study.name(real), "mean": real.mean, "spread": mean_and_deviation(real)},
        "equal": pair.equal and COSTS[pair.equal],
        "equal_share": pair.equal and share(pair.share(pair.equal), 1),
        "shares": {name: share(pair.share(cost), 1) for cost, name in COSTS.items() if cost != pair.equal},
        "judgement": judgement(study, ours, real),
    }


def judgement(study: Study, group: Group, other: Group) -> dict[str, Any]:
    """Values that say whether the difference of two networks is more than chance.

    Returns:
        ``away`` is the difference, ``by`` its size as text, and ``word`` its direction, empty if it rounds to zero.
        ``is_significant`` is None if it is not known. ``num_test`` is the number of test images, and ``overlap`` says
        whether the intervals of the two accuracies overlap; both are None if they are not known.
    """
    away = group.mean - other.mean
    written = difference(away, study.metric)
    is_known = standard_error(group.values, other.values) is not None
    a, b = group.interval, other.interval
    return {
        "away": away,
        "by": written.lstrip("+−"),
        "word": ("better" if study.is_better(away) else "worse") if written[0] in "+−" else "",
        "is_significant": is_significant(group.values, other.values) if is_known else None,
        "num_test": group.num_test,
        "overlap": a[0] <= b[1] and b[0] <= a[1] if a and b else None,
    }


def plain(study: Study, groups: Iterable[Group]) -> list[Group]:
    """The networks that differ from the recipe only in their size; all of them if there is no such network."""
    found = list(groups)
    return [group for group in found if not set(study.changed(group)) - SIZES] or found


def _rank(study: Study, pair: Pair, cost: str) -> tuple[int, float, float]:
    """The sort key of pairs that are equal in a cost: the recipe's own size first, then the largest, the nearest."""
    return _num_other_sizes(study, pair), -getattr(pair.real.first, cost), pair.distance(cost)


def _misfit(study: Study, pair: Pair) -> tuple[int, float]:
    return _num_other_sizes(study, pair), sum(pair.distance(cost) for cost in COSTS)


def _num_other_sizes(study: Study, pair: Pair) -> int:
    """How many networks of the pair have another size than the recipe's own."""
    return sum(not study.is_own_size(group) for group in (pair.ours, pair.real))
