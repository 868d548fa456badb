"""What a study says in a sentence, in a few figures, and how it differs from the paper."""

from __future__ import annotations

import math
from dataclasses import dataclass

from algebranets.lab.report.groups import Group, Study
from algebranets.lab.report.numbers import amount, difference, duration, metric_name, quality, share, shares
from algebranets.lab.report.parts import Card
from algebranets.lab.report.pruned import summary as pruned
from algebranets.lab.report.published import OPEN, SIZES, rows
from algebranets.lab.train.results import label

#: More networks than these are not named one by one.
_NAMED = 8


@dataclass(frozen=True)
class _Pair:
    """A network beside the real one."""

    ours: Group
    real: Group


@dataclass(frozen=True)
class _Series:
    """A network in all of its sizes, and what it has of real ones that are as good, from the least to the most."""

    name: str
    parameters: str
    multiplies: str


def headline(study: Study) -> str:
    """The study in a sentence.

    The real network is that of the recipe's own size, else the largest. The network named needs the fewest parameters
    among those that are no worse, their spread over seeds considered; where all are worse it is the best. If real ones
    of several sizes tell what one as good would cost, it is named with all of its sizes, and compared with those.
    Of a recipe that prunes, it is about a pruned network.
    """
    if study.is_of_pruning and (chosen := pruned.chosen(study)):
        return f"{pruned.headline(study, chosen)}{_aside(study)}."
    pair = _best_pair(study)
    if pair is None:
        if not study.finished:
            return "No network was trained to the end as the recipe has it."
        best = _best(study, study.finished)
        return (
            f"{study.name(best)} reaches {quality(best.mean, study.metric, unit=True)} {metric_name(study.metric)} "
            f"with {amount(best.first.parameters)} parameters{_aside(study)}."
        )
    ours, real = pair.ours, pair.real
    if series := _series(study, ours):
        return (
            f"{series.name} needs {series.parameters} of the parameters and {series.multiplies} of the multiply-adds "
            f"of a real network that is as good{_aside(study)}."
        )
    return (
        f"{study.name(ours)} reaches {quality(ours.mean, study.metric, unit=True)} {metric_name(study.metric)} with "
        f"{share(ours.first.parameters, real.first.parameters)} of the real network's parameters and "
        f"{share(ours.first.multiplies, real.first.multiplies)} of its multiply-adds; "
        f"the real one reaches {quality(real.mean, study.metric, unit=True)}{_aside(study)}."
    )


def _aside(study: Study) -> str:
    return f" (all runs: {_shared(study)})" if study.shared else ""


def _shared(study: Study) -> str:
    """What all runs have that the recipe has not, and so no row's name says."""
    return ", ".join(f"{key} = {value}" for key, value in sorted(study.shared.items()))


def cards(study: Study) -> list[Card]:
    """The study's key figures."""
    found: list[Card] = []
    if study.is_of_pruning and (chosen := pruned.chosen(study)):
        found += pruned.cards(study, chosen)
    elif pair := _best_pair(study):
        found += _compared(study, pair)
    beside = [group for group in study.finished if group.difference is not None]
    if beside:
        widest = max(beside, key=lambda group: abs(group.difference or 0))
        found.append(
            Card(
                difference(widest.difference, study.metric),
                f"the largest difference to the paper, {study.name(widest)}; {len(beside)} of "
                f"{len(rows(study.recipe))} printed rows trained",
            )
        )
    runs = [result for group in study.groups for result in group.results]
    seconds = duration(sum(run.seconds for run in runs))
    found.append(Card(f"{len(runs)} run{'' if len(runs) == 1 else 's'}", f"in {seconds} of training"))
    return found


def _compared(study: Study, pair: _Pair) -> list[Card]:
    if series := _series(study, pair.ours):
        return [
            Card(series.parameters, f"of the parameters of a real network that is as good, {series.name}"),
            Card(series.multiplies, f"of its multiply-adds, {series.name}"),
        ]
    ours, real, name = pair.ours.first, pair.real.first, study.name(pair.ours)
    return [
        Card(share(ours.parameters, real.parameters), f"of the real network's parameters, {name}"),
        Card(share(ours.multiplies, real.multiplies), f"of its multiply-adds, {name}"),
        Card(
            difference(pair.ours.mean - pair.real.mean, study.metric),
            f"{metric_name(study.metric)} against the real network, {name}",
        ),
    ]


def departures(study: Study) -> list[str]:
    """What differs from the paper, plainly: what it leaves open, what was changed, what was not run."""
    found = list(OPEN.get(study.recipe, ("The paper has no such experiment.",)))
    if study.shared:
        found.append(f"All runs here were made with {_shared(study)}, which is not the recipe's own setting.")
    mixed = [study.name(group) for group in study.groups if group.settings_differ]
    if mixed:
        found.append(
            f"Their runs differ in more than the seed, as the recipe changed between them: {', '.join(mixed)}."
        )
    trained = {group.printed.row for group in study.rows if group.printed}
    missing = [row.row for row in rows(study.recipe).values() if row.row not in trained]
    if missing:
        found.append(f"Rows of the paper that were not trained here: {', '.join(missing)}.")
    judged = [*study.rows, *study.pruned]
    single = [study.name(group) for group in judged if len(group.results) == 1]
    if single:
        named = ", ".join(single) if len(single) <= _NAMED else f"{len(single)} of {len(judged)} rows"
        which = "Every row" if len(single) == len(judged) else named
        found.append(f"{which}: one seed only, so nothing is known of the spread.")
    return found


def _best_pair(study: Study) -> _Pair | None:
    reals = [group for group in study.finished if group.is_real]
    others = [group for group in study.finished if not group.is_real]
    if not reals or not others:
        return None
    real = max(reals, key=lambda group: (study.is_own_size(group), group.first.parameters))
    as_good = [group for group in others if _no_worse(study, group, real)]
    if as_good:
        return _Pair(min(as_good, key=lambda group: (group.first.parameters, group.first.multiplies)), real)
    return _Pair(_best(study, others), real)


def _series(study: Study, ours: Group) -> _Series | None:
    """``ours`` and its other sizes; None where it is not known what a real network costs that is as good as itself."""
    name = _sizeless(study, ours)
    alike = [(group, real) for group, real in study.matched if _sizeless(study, group) == name]
    if not any(group is ours for group, _ in alike):
        return None
    return _Series(
        name,
        shares([group.first.parameters / real.parameters for group, real in alike]),
        shares([group.first.multiplies / real.multiplies for group, real in alike]),
    )


def _sizeless(study: Study, group: Group) -> str:
    """A network's name, whatever its size."""
    return label(group.algebra, 1, {key: value for key, value in study.changed(group).items() if key not in SIZES})


def _best(study: Study, groups: list[Group]) -> Group:
    return max(groups, key=lambda group: group.mean if study.more_is_better else -group.mean)


def _no_worse(study: Study, ours: Group, real: Group) -> bool:
    """Within two standard errors of the difference; one seed has none."""
    error = math.hypot(*((g.spread or 0) / math.sqrt(len(g.results)) for g in (ours, real)))
    behind = real.mean - ours.mean if study.more_is_better else ours.mean - real.mean
    return behind <= 2 * error
