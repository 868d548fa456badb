"""The headline of a study, its key figures, and its differences from the paper."""

from __future__ import annotations

from typing import Any

from algebranets.lab.report.equal_quality import matched
from algebranets.lab.report.group import Group
from algebranets.lab.report.numbers import share, shares
from algebranets.lab.report.paper.departures import DEPARTURES
from algebranets.lab.report.paper.rows import SIZES, printed_rows
from algebranets.lab.report.parts import Card
from algebranets.lab.report.pruned import summary as pruned
from algebranets.lab.report.significance import is_significant, standard_error
from algebranets.lab.report.study import Study
from algebranets.lab.report.words import paragraphs, sentence
from algebranets.lab.train.results import label

#: If there are more networks than this, they are counted instead of named.
_MAX_NAMED = 8


def headline(study: Study) -> str:
    """The study in one sentence.

    It compares a network over an algebra with the real network of the recipe's own size, or with the largest real one
    if that was not trained. The network over an algebra is the one with the fewest parameters among those that are not
    significantly worse. If all are worse, it is the best one. If several sizes of the real network were trained and the
    cost of a real network of the same quality is known, all sizes of the network are compared with that cost. In a
    study of pruning, the headline is about a pruned network.
    """
    return sentence("headline", metric=study.metric, shared=_shared(study), **_comparison(study))


def cards(study: Study) -> list[Card]:
    """The study's key figures."""
    beside = [group for group in study.finished if group.difference_to_paper is not None]
    widest = max(beside, key=lambda group: abs(group.difference_to_paper or 0), default=None)
    lines = paragraphs(
        "cards",
        metric=study.metric,
        **_comparison(study),
        widest=widest and {
            "name": study.name(widest),
            "away": widest.difference_to_paper,
            "num_trained": len(beside),
            "num_printed": len(printed_rows(study.recipe)),
        },
        num_runs=len(study.runs),
        seconds=sum(run.seconds for run in study.runs),
    )  # fmt: skip
    return [Card(figure, meaning) for figure, _, meaning in (line.partition(" | ") for line in lines)]


def departures(study: Study) -> list[str]:
    """Sentences on the differences from the paper: open points, changed settings, and networks that were not run."""
    trained = {group.printed.row for group in study.rows if group.printed}
    return paragraphs(
        "departures",
        known=DEPARTURES.get(study.recipe, ()),
        shared=_shared(study),
        mixed=[study.name(group) for group in study.groups if group.settings_differ],
        missing=[row.row for row in printed_rows(study.recipe).values() if row.row not in trained],
        single=_with_one_seed(study),
    )


def _shared(study: Study) -> str:
    """The settings that all runs share and that differ from the recipe. Names of rows leave them out."""
    return ", ".join(f"{key} = {value}" for key, value in sorted(study.shared_changes.items()))


def _with_one_seed(study: Study) -> str:
    """The networks that were trained with one seed only, as text; empty if there are none."""
    judged = [*study.rows, *study.pruned]
    single = [study.name(group) for group in judged if len(group.results) == 1]
    if single and len(single) == len(judged):
        return "Every row"
    return ", ".join(single) if len(single) <= _MAX_NAMED else f"{len(single)} of {len(judged)} rows"


def _comparison(study: Study) -> dict[str, Any]:
    """Values about the network in the headline. At most one of the four is not None."""
    found: dict[str, Any] = {"pruned": None, "series": None, "pair": None, "best": None}
    if study.is_about_pruning and (chosen := pruned.facts(study)):
        return found | {"pruned": chosen}
    if not study.finished:
        return found
    reals = [group for group in study.finished if group.is_real]
    others = [group for group in study.finished if not group.is_real]
    if not reals or not others:
        best = study.best(study.finished)
        return found | {"best": _facts(study, best) | {"parameters": best.first.parameters}}
    real = max(reals, key=lambda group: (study.is_own_size(group), group.first.parameters))
    ours = _smallest_as_good(study, others, real) or study.best(others)
    if series := _series(study, ours):
        return found | {"series": series}
    return found | {
        "pair": _facts(study, ours)
        | {
            "real": real.mean,
            "away": ours.mean - real.mean,
            "parameters": share(ours.first.parameters, real.first.parameters),
            "multiplies": share(ours.first.multiplies, real.first.multiplies),
        }
    }


def _facts(study: Study, group: Group) -> dict[str, Any]:
    return {"name": study.name(group), "mean": group.mean}


def _smallest_as_good(study: Study, groups: list[Group], real: Group) -> Group | None:
    """The network with the fewest parameters among those that are as good as ``real``; None if none is."""
    as_good = [group for group in groups if _is_as_good(study, group, real)]
    return min(as_good, key=lambda group: (group.first.parameters, group.first.multiplies), default=None)


def _is_as_good(study: Study, ours: Group, real: Group) -> bool:
    """Whether ``ours`` is not worse than ``real``, or the difference is known not to be significant."""
    if not study.is_better(real.mean - ours.mean):
        return True
    can_be_judged = standard_error(ours.values, real.values) is not None
    return can_be_judged and not is_significant(ours.values, real.values)


def _series(study: Study, ours: Group) -> dict[str, str] | None:
    """All sizes of a network, compared with real networks of the same quality; None if ``ours`` has no such match."""
    name = _sizeless(study, ours)
    alike = [(group, real) for group, real in matched(study) if _sizeless(study, group) == name]
    if not any(group is ours for group, _ in alike):
        return None
    return {
        "name": name,
        "parameters": shares([group.first.parameters / real.parameters for group, real in alike]),
        "multiplies": shares([group.first.multiplies / real.multiplies for group, real in alike]),
    }


def _sizeless(study: Study, group: Group) -> str:
    """A network's name without its size."""
    return label(group.algebra, 1, {key: value for key, value in study.changed(group).items() if key not in SIZES})
