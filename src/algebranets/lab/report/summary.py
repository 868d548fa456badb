"""The headline of a study, its key figures, and its differences from the paper."""

from __future__ import annotations

from typing import Any

from algebranets.lab.report import claim
from algebranets.lab.report.group import COSTS
from algebranets.lab.report.numbers import interval
from algebranets.lab.report.paper.departures import DEPARTURES
from algebranets.lab.report.paper.rows import printed_rows
from algebranets.lab.report.parts import Card, spread
from algebranets.lab.report.pruned import summary as pruned
from algebranets.lab.report.study import Study
from algebranets.lab.report.words import paragraphs, sentence

#: If there are more networks than this, they are counted instead of named.
_MAX_NAMED = 8


def headline(study: Study) -> str:
    """The study in one to three sentences.

    They compare M2(R) with R at equal multiply-adds and at equal parameters, as the paper's claim does; `claim.pairs`
    has the rule. They say so if the runs do not allow that comparison. In a study of pruning, they are about a pruned
    network.
    """
    return sentence("headline", metric=study.metric, shared=_shared(study), **_comparison(study))


def cards(study: Study) -> list[Card]:
    """The study's key figures."""
    beside = [group for group in study.finished if group.difference_to_paper is not None]
    widest = max(beside, key=lambda group: abs(group.difference_to_paper or 0), default=None)
    lines = paragraphs(
        "cards",
        metric=study.metric,
        more_is_better=study.more_is_better,
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
    """Values about the networks in the headline. At most one of pruned, pairs and alone is not empty."""
    found: dict[str, Any] = {"pruned": None, "pairs": [], "alone": None, "missing": [], "claimed": claim.CLAIMED}
    if study.is_about_pruning and (chosen := pruned.facts(study)):
        return found | {"pruned": chosen}
    if not study.finished:
        return found
    if not (pairs := claim.pairs(study)):
        return found | {"alone": _alone(study)}
    known = {pair.equal for pair in pairs}
    return found | {
        "pairs": [claim.facts(study, pair) for pair in pairs],
        "missing": [name for cost, name in reversed(COSTS.items()) if cost not in known],
    }


def _alone(study: Study) -> dict[str, Any]:
    """Values about the network of the recipe's own size, or the largest one, for a study without a comparison."""
    group = max(
        claim.plain(study, study.finished), key=lambda group: (study.is_own_size(group), group.first.parameters)
    )
    return {
        "name": study.name(group),
        "mean": group.mean,
        "spread": spread(group),
        "interval": group.interval and interval(group.interval, study.metric),
        "num_test": group.num_test,
        "is_real": group.is_real,
        "parameters": group.first.parameters,
        "multiplies": group.first.multiplies,
    }
