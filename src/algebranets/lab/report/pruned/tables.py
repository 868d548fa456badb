"""Tables of pruned networks: their quality, and comparisons of criteria (Table 4) and of units (Table 5)."""

from __future__ import annotations

from collections.abc import Iterable

from algebranets.lab.report.group import PRUNING, Group
from algebranets.lab.report.numbers import NONE, amount, percent, share
from algebranets.lab.report.paper.printed import COMPONENTS, CRITERIA
from algebranets.lab.report.paper.rows import ranked_criteria
from algebranets.lab.report.parts import INTERVAL, Cell, Sheet, difference_cell, interval_cell, mean_and_deviation
from algebranets.lab.report.study import Study
from algebranets.lab.report.words import paragraphs


def sheets(study: Study) -> list[Sheet]:
    """The three tables of pruned networks; a table may have no rows."""
    return [pruned_sheet(study), criteria_sheet(study), components_sheet(study)]


def pruned_sheet(study: Study) -> Sheet:
    """Every pruned network, compared with the same network without pruning."""
    rows = []
    for group in study.pruned:
        rows.append((
            Cell(f"{study.name(group, without={'pruning.sparsity'})}, {percent(group.sparsity)}"),
            Cell(mean_and_deviation(group)),
            interval_cell(group),
            difference_cell(study, group, study.dense(group)),
            Cell(_amount_and_share(group.nonzero, group.first.parameters)),
            Cell(_amount_and_share(group.multiplies_left, group.first.multiplies)),
        ))  # fmt: skip
    headings = (
        "network, sparsity", study.metric, INTERVAL, "difference", "parameters not zero", "multiply-adds left",
    )  # fmt: skip
    num_test = study.groups[0].num_test
    notes = paragraphs("notes/pruned", num_test=num_test, has_rows=bool(study.rows))
    return Sheet("Pruned", headings, tuple(rows), tuple(notes))


def _amount_and_share(part: float | None, whole: int) -> str:
    """A number and its share of the whole, for example ``500 k (50 %)``."""
    return NONE if part is None else f"{amount(part)} ({share(part, whole)})"


def criteria_sheet(study: Study) -> Sheet:
    """Other pruning criteria compared with the norm at the same sparsity; the paper's figures are for M2R."""
    by_criterion = {
        place: {group.criterion: group for group in found}
        for place, found in _by_network_and_sparsity(
            study, (group for group in study.pruned if group.unit == "tuple")
        ).items()
        if any(group.criterion != "norm" for group in found)
    }
    used = dict.fromkeys(name for found in by_criterion.values() for name in found)
    columns = [name for name in dict.fromkeys([*ranked_criteria(), *used]) if name != "norm"]
    rows = []
    for (network, sparsity), found in by_criterion.items():
        printed = CRITERIA.get(sparsity, {}) if _is_in_paper(study, found.values()) else {}
        cells = [Cell(f"{network}, {percent(sparsity)}")]
        for name in columns:
            cells += [difference_cell(study, found.get(name), found.get("norm")), Cell(_signed(printed.get(name)))]
        rows.append(tuple(cells))
    headings = ("network, sparsity", *(heading for name in columns for heading in (_in_words(name), "paper")))
    same, other = _orders(study, by_criterion)
    order = ", ".join(map(_in_words, ranked_criteria()))
    notes = paragraphs("notes/criteria", metric=study.metric, order=order, same=same, other=other)
    return Sheet("Criteria compared with the norm", headings, tuple(rows), tuple(notes))


def _is_in_paper(study: Study, groups: Iterable[Group]) -> bool:
    """Whether the paper's table of criteria covers these networks: it has accuracies over M2R only."""
    return study.metric == "accuracy" and all(group.algebra == "M2R" for group in groups)


def _orders(study: Study, by_criterion: dict[tuple[str, float], dict[str, Group]]) -> tuple[list[str], list[str]]:
    """The networks for which our means rank the criteria in the paper's order; then the others, with their order.

    Criteria without runs, or with a run that diverged, are left out.
    """
    same, other = [], []
    for (network, sparsity), found in by_criterion.items():
        known = [name for name in ranked_criteria() if name in found and found[name].is_finished]
        ours = sorted(known, key=lambda name: found[name].mean, reverse=study.more_is_better)
        if len(known) > 1 and ours == known:
            same.append(f"{network}, {percent(sparsity)}")
        elif len(known) > 1:
            other.append(f"{network}, {percent(sparsity)} ({', '.join(map(_in_words, ours))})")
    return same, other


def _in_words(criterion: str) -> str:
    return criterion.replace("-", " ")


def components_sheet(study: Study) -> Sheet:
    """Pruned components compared with pruned tuples at the same sparsity, one column per network."""
    places = _by_network_and_sparsity(study, (group for group in study.pruned if group.criterion == "norm"))
    pairs = {place: {group.unit: group for group in found} for place, found in places.items()}
    pairs = {place: found for place, found in pairs.items() if "component" in found}
    networks = {network: found["component"].algebra for (network, _), found in pairs.items()}
    has_paper = {
        network for network, algebra in networks.items()
        if study.metric == "accuracy" and any(algebra in figures for figures in COMPONENTS.values())
    }  # fmt: skip
    rows, known = [], []
    for sparsity in sorted({sparsity for _, sparsity in pairs}):
        cells = [Cell(percent(sparsity))]
        for network, algebra in networks.items():
            found = pairs.get((network, sparsity), {})
            cell = difference_cell(study, found.get("component"), found.get("tuple"))
            cells.append(cell)
            if cell.text != NONE:
                known.append(cell)
            if network in has_paper:
                cells.append(Cell(_signed(COMPONENTS.get(sparsity, {}).get(algebra))))
        rows.append(tuple(cells))
    headings = ["sparsity"]
    for network in networks:
        headings += [network, "paper"] if network in has_paper else [network]
    notes = paragraphs(
        "notes/components",
        metric=study.metric,
        num_cases=len(known),
        num_better=sum(cell.text.startswith("+" if study.more_is_better else "−") for cell in known),
        num_significant=sum(cell.tone == "better" for cell in known),
    )
    return Sheet("Components compared with tuples", tuple(headings), tuple(rows), tuple(notes))


def _by_network_and_sparsity(study: Study, groups: Iterable[Group]) -> dict[tuple[str, float], list[Group]]:
    """Collect groups by network and sparsity, in order. Groups of one key differ only in unit and criterion."""
    found: dict[str, dict[float, list[Group]]] = {}
    for group in groups:
        network = study.name(group, without=PRUNING)
        found.setdefault(network, {}).setdefault(group.sparsity, []).append(group)
    return {(network, sparsity): found[network][sparsity] for network in found for sparsity in sorted(found[network])}


def _signed(figure: str | None) -> str:
    """A difference as the paper prints it, but always with a sign, as in our tables."""
    if figure is None:
        return NONE
    return figure.replace("-", "−") if figure.startswith("-") else f"+{figure}"
