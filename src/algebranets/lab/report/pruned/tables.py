"""What pruned networks reach, by how tuples are ranked (Table 4) and by what is pruned (Table 5)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from algebranets.lab.report import paper
from algebranets.lab.report.groups import PRUNING, Group, Study
from algebranets.lab.report.numbers import NONE, amount, metric_name, percent, share
from algebranets.lab.report.parts import Cell, Sheet, compared, reached
from algebranets.lab.report.published import criteria

_SET_OFF = "It is set off where it is more than twice the standard deviation over seeds."


def sheets(study: Study) -> list[Sheet]:
    """All tables of pruned networks; those without rows have nothing to say."""
    return [pruned_sheet(study), criteria_sheet(study), components_sheet(study)]


def pruned_sheet(study: Study) -> Sheet:
    """Every pruned network beside the same one that is dense."""
    rows = []
    for group in study.pruned:
        dense = study.dense(group)
        rows.append((
            Cell(study.name(group, without={"pruning.sparsity"})),
            Cell(percent(group.sparsity)),
            Cell(_left(group.nonzero, group.first.parameters)),
            Cell(_left(group.multiplies_left, group.first.multiplies)),
            Cell(reached(group)),
            _less(study, group, dense),
        ))  # fmt: skip
    headings = ("network", "sparsity", "parameters not zero", "multiply-adds left", study.metric, "difference")
    notes = (
        "Whole tuples are pruned, those of the smallest norm, where a network's name says nothing else.",
        "In parentheses, the share of the dense network's. Left are the multiply-adds of products with tuples that are "
        "not zero; a zero component skips nothing.",
        f"The difference is to the same network, dense. {_SET_OFF}",
    )
    return Sheet("Pruned", headings, tuple(rows), notes)


def _left(part: float | None, whole: int) -> str:
    """Such as ``500 k (50 %)``."""
    return NONE if part is None else f"{amount(part)} ({share(part, whole)})"


def criteria_sheet(study: Study) -> Sheet:
    """Other criteria less the norm at the same sparsity; the paper's figures are of M2R."""
    ranked = {
        place: {group.criterion: group for group in found}
        for place, found in _places(study, (group for group in study.pruned if group.unit == "tuple")).items()
        if any(group.criterion != "norm" for group in found)
    }
    used = dict.fromkeys(name for found in ranked.values() for name in found)
    columns = [name for name in dict.fromkeys([*criteria(), *used]) if name != "norm"]
    rows = []
    for (network, sparsity), found in ranked.items():
        there = paper.CRITERIA.get(sparsity, {}) if _is_the_papers(study, found.values()) else {}
        cells = [Cell(f"{network}, {percent(sparsity)}")]
        for name in columns:
            cells += [_less(study, found.get(name), found.get("norm")), Cell(_printed(there.get(name)))]
        rows.append(tuple(cells))
    headings = ("network", *(heading for name in columns for heading in (name.replace("-", " "), "paper")))
    notes = (
        f"A difference is a criterion's {metric_name(study.metric)} less the norm's at the same sparsity. {_SET_OFF} "
        "The paper's are of M2R, ResNet-50 on ImageNet (Table 4).",
        *_order_notes(study, ranked),
    )
    return Sheet("Criteria against the norm", headings, tuple(rows), notes)


def _is_the_papers(study: Study, groups: Iterable[Group]) -> bool:
    """Whether the paper has figures of this kind: accuracies over M2R."""
    return study.metric == "accuracy" and all(group.algebra == "M2R" for group in groups)


def _order_notes(study: Study, ranked: dict[tuple[str, float], dict[str, Group]]) -> list[str]:
    """Where our means are in the paper's order, of the criteria that were run to the end, and where not."""
    same, other = [], []
    for (network, sparsity), found in ranked.items():
        known = [name for name in criteria() if name in found and math.isfinite(found[name].mean)]
        ours = sorted(known, key=lambda name: found[name].mean, reverse=study.more_is_better)
        if len(known) > 1 and ours == known:
            same.append(f"{network}, {percent(sparsity)}")
        elif len(known) > 1:
            other.append(f"{network}, {percent(sparsity)} ({_words(ours)})")
    said = [f"The paper's order at every sparsity, best first: {_words(criteria())}."]
    if same:
        said.append(f"Our means, of what was run, are in that order for {'; '.join(same)}.")
    if other:
        said.append(f"They are not for {'; '.join(other)}." if same else f"Our means are not: {'; '.join(other)}.")
    return [" ".join(said)] if same or other else []


def _words(names: Iterable[str]) -> str:
    return ", ".join(name.replace("-", " ") for name in names)


def components_sheet(study: Study) -> Sheet:
    """Pruned components less pruned tuples at the same sparsity, a column a network."""
    places = _places(study, (group for group in study.pruned if group.criterion == "norm"))
    pairs = {place: {group.unit: group for group in found} for place, found in places.items()}
    pairs = {place: found for place, found in pairs.items() if "component" in found}
    networks = {network: found["component"].algebra for (network, _), found in pairs.items()}
    has_paper = {
        network for network, algebra in networks.items()
        if study.metric == "accuracy" and any(algebra in figures for figures in paper.COMPONENTS.values())
    }  # fmt: skip
    rows, known = [], []
    for sparsity in sorted({sparsity for _, sparsity in pairs}):
        cells = [Cell(percent(sparsity))]
        for network, algebra in networks.items():
            found = pairs.get((network, sparsity), {})
            case = _less(study, found.get("component"), found.get("tuple"))
            cells.append(case)
            if case.text != NONE:
                known.append(case)
            if network in has_paper:
                cells.append(Cell(_printed(paper.COMPONENTS.get(sparsity, {}).get(algebra))))
        rows.append(tuple(cells))
    headings = ["sparsity"]
    for network in networks:
        headings += [network, "paper"] if network in has_paper else [network]
    better = sum(case.text.startswith("+" if study.more_is_better else "−") for case in known)
    told = sum(case.tone == "better" for case in known)
    notes = (
        f"A difference is the {metric_name(study.metric)} with components pruned less that with tuples pruned. "
        f"{_SET_OFF} The paper's are of ResNet-50 on ImageNet (Table 5).",
        f"In the paper components are better at every sparsity; here in {better} of {len(known)} cases, "
        f"set off in {told}.",
    )
    return Sheet("Components against tuples", tuple(headings), tuple(rows), notes[: 2 if known else 1])


def _places(study: Study, groups: Iterable[Group]) -> dict[tuple[str, float], list[Group]]:
    """Networks that are pruned otherwise but as much: by name and sparsity, in order."""
    found: dict[str, dict[float, list[Group]]] = {}
    for group in groups:
        network = study.name(group, without=PRUNING)
        found.setdefault(network, {}).setdefault(group.sparsity, []).append(group)
    return {(network, sparsity): found[network][sparsity] for network in found for sparsity in sorted(found[network])}


def _less(study: Study, group: Group | None, other: Group | None) -> Cell:
    """The one's mean less the other's, where both were run."""
    if group is None or other is None:
        return Cell(NONE)
    return compared(study, group, group.mean - other.mean, other)


def _printed(figure: str | None) -> str:
    """A difference as the paper prints it, signed as ours are."""
    if figure is None:
        return NONE
    return figure.replace("-", "−") if figure.startswith("-") else f"+{figure}"
