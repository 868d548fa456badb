"""The tables of trained networks, from the rows in ``results/``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from algebranets.lab.report import equal_quality, tables
from algebranets.lab.report.group import Group
from algebranets.lab.report.numbers import NONE, amount, difference, percent, quality, share
from algebranets.lab.report.parts import difference_cell, markdown_table, mean_and_deviation
from algebranets.lab.report.pruned import tables as pruned
from algebranets.lab.report.significance import is_significant, standard_error
from algebranets.lab.report.study import Study, studies
from algebranets.lab.train import results
from sitegen import table
from sitegen.regions import Make

#: The largest share of the parameters that still counts as about half of them.
ABOUT_HALF = 0.55
#: The verdict on a claim that a significant difference would decide.
OPEN = "**open**: no significant difference"

FOLDER = Path(__file__).resolve().parent.parent.parent / "results"


@cache
def study(name: str) -> Study:
    """The networks of a file of results."""
    (found,) = studies(results.read([FOLDER / f"{name}.jsonl"]))
    return found


def _named(name: str, network: str) -> Group:
    """A network of a study, by its name in the report."""
    found = study(name)
    return next(group for group in found.groups if found.name(group) == network)


def _of_r(ours: Group, name: str) -> str:
    """The parameters of a network as a share of those of the real one."""
    return share(ours.first.parameters, _named(name, "R").first.parameters)


def cifar10(names: tuple[str, ...] = (), headings: tuple[str, ...] = ()) -> str:
    """The paper's CIFAR-10 table."""
    kept = headings or (
        "network", "parameters", "parameters, paper", "multiply-adds",
        "accuracy, paper", "accuracy, ours", "difference",
    )  # fmt: skip
    return table.pick(tables.rows_sheet(study("cifar10")), kept, names)


def ablations() -> str:
    """The variants of the CIFAR-10 network about which the paper says something."""
    sheet = tables.ablations_sheet(study("cifar10"))
    last = sheet.headings.index("the paper says")
    names = [row[0].text for row in sheet.rows if row[last].text != NONE]
    return table.pick(sheet, ("variant", "without the change", "accuracy", "difference", "the paper says"), names)


def settings() -> str:
    """The M2(R) networks by which the settings of the CIFAR-10 recipe were chosen, with the recipe's own first."""
    found, varied = study("cifar10"), {"optimizer.weight_decay", "label_smoothing", "epochs"}
    groups = [g for g in found.groups if g.algebra == "M2R" and set(found.changed(g)) <= varied]
    rows = []
    for group in groups:
        run = group.first.experiment
        how = (run["optimizer"]["weight_decay"], run["label_smoothing"], run["epochs"])
        if run["epochs"] >= 200:  # shorter runs are the base of ablations
            rows.append((*how, mean_and_deviation(group)))
    rows.sort(key=lambda row: (row[2], row[0], -row[1]))
    return markdown_table(["L2", "label smoothing", "epochs", "accuracy"], [list(map(_plain, row)) for row in rows])


def _plain(value: object) -> str:
    """A setting as text, numbers without trailing zeros.

    >>> _plain(200.0), _plain(0.0003), _plain("94.1")
    ('200', '0.0003', '94.1')
    """
    return f"{value:g}" if isinstance(value, float | int) else str(value)


def texts() -> str:
    """The Transformer-XLs that were trained for 25 minutes."""
    found, cells = study("transformer_xl-short"), []
    for group in found.groups:
        run = group.first
        characters = run.steps * run.experiment["data"]["batch_size"] * run.experiment["data"]["length"]
        minutes = f"{group.seconds / 60:.1f}"
        numbers = [amount(run.parameters), amount(run.multiplies), f"{run.steps:,}", amount(characters), minutes]
        cells.append([found.name(group), *numbers, quality(group.mean, found.metric)])
    headings = ["network", "parameters", "multiply-adds", "steps", "characters read", "minutes", "bpc, validation"]
    return markdown_table(headings, cells)


def at_equal_quality(name: str) -> str:
    """Every network of a study, with its cost as a share of that of a real network of the same quality."""
    found = study(name)
    real = {id(group): cost for group, cost in equal_quality.matched(found)}
    cells = []
    for group in found.rows:
        run, cost = group.first, real.get(id(group))
        cells.append([
            found.name(group), mean_and_deviation(group, with_seeds=False),
            amount(run.parameters), share(run.parameters, cost.parameters) if cost else NONE,
            amount(run.multiplies), share(run.multiplies, cost.multiplies) if cost else NONE,
        ])  # fmt: skip
    return markdown_table(["network", "bpc", "parameters", "of real", "multiply-adds", "of real"], cells)


def demo() -> str:
    """The networks of the demo, each compared with the real network of the recipe's width."""
    found, real, cells = study("char-lm-small"), _named("char-lm-small", "R"), []
    for group in found.rows:
        run, away = group.first, difference_cell(found, group, None if group is real else real)
        cells.append([
            found.name(group), mean_and_deviation(group, with_seeds=False), away.bold,
            amount(run.parameters), share(run.parameters, real.first.parameters),
            amount(run.multiplies), share(run.multiplies, real.first.multiplies),
        ])  # fmt: skip
    return markdown_table(["network", "bpc", "difference", "parameters", "of R", "multiply-adds", "of R"], cells)


def claims() -> str:
    """The paper's main claims, and what the runs say about them."""
    cells = [[claim, *judge()] for claim, judge in CLAIMS.items()]
    return markdown_table(["claim of the paper", "here", "measured"], cells, prose=(0, 1, 2))


def _verdict(holds: bool) -> str:
    return "**confirmed**" if holds else "**not confirmed**"


def _better(pairs: list[tuple[Group, Group]], by: Study) -> str:
    """The verdict on the claim that the first network of each pair is better than the second."""
    if not all(by.is_better(ours.mean - other.mean) for ours, other in pairs):
        return _verdict(False)
    return _verdict(True) if all(is_significant(ours.values, other.values) for ours, other in pairs) else OPEN


def _as_good(ours: Group, other: Group, by: Study) -> str:
    """The verdict on the claim that a network is as good as another one."""
    if not by.is_better(other.mean - ours.mean):
        return _verdict(True)
    is_known = standard_error(ours.values, other.values) is not None
    return OPEN if is_known and not is_significant(ours.values, other.values) else _verdict(False)


def _seeds(group: Group) -> str:
    return "one seed" if len(group.values) == 1 else f"{len(group.values)} seeds"


def _keeps_accuracy() -> list[str]:
    real, ours = _named("cifar10", "R"), _named("cifar10", "M2R")
    away = difference(ours.mean - real.mean, "accuracy")
    words = f"CIFAR-10, {_seeds(ours)}: {away} with {_of_r(ours, 'cifar10')} of the parameters of R"
    return [_as_good(ours, real, study("cifar10")), words]


def _better_than_h() -> list[str]:
    ours, other = _named("cifar10", "M2R"), _named("cifar10", "H")
    words = f"CIFAR-10, {_seeds(ours)}: {difference(ours.mean - other.mean, 'accuracy')}"
    return [_better([(ours, other)], study("cifar10")), words]


def _whitening() -> list[str]:
    pairs = [(_named("cifar10", f"{name}, norm whitening"), _named("cifar10", name)) for name in ("C", "H")]
    words = " and ".join(difference(a.mean - b.mean, "accuracy") for a, b in pairs)
    return [_better(pairs, study("cifar10")), f"CIFAR-10, {_seeds(pairs[0][0])}: {words}"]


def _matches_r() -> list[str]:
    found = study("transformer_xl-short")
    ours, real = _named("transformer_xl-short", "M2R"), _named("transformer_xl-short", "R")
    words = f"enwik8, 25 minutes each, {_seeds(ours)}: {difference(ours.mean - real.mean, 'bpc')} bits per character"
    return [_as_good(ours, real, found), words]


def _half_the_parameters() -> list[str]:
    words, shares = [], []
    for name, what in (("transformer_xl-small", "small Transformer-XLs"), ("gru-short", "short GRU runs")):
        costs = [(group.first, cost) for group, cost in equal_quality.matched(study(name)) if group.algebra == "M2R"]
        parameters = [run.parameters / cost.parameters for run, cost in costs]
        multiplies = [run.multiplies / cost.multiplies for run, cost in costs]
        words.append(f"{what}: {_range(parameters)} of the parameters and {_range(multiplies)} of the multiply-adds")
        shares += parameters
    if max(shares) <= ABOUT_HALF or min(shares) >= 1:
        return [_verdict(min(shares) < 1), "; ".join(words)]
    return ["**in part**: fewer, but not half", "; ".join(words)]


#: The paper's main claims, with the functions that return the verdict and the measured numbers.
CLAIMS: dict[str, Callable[[], list[str]]] = {
    "M2(R) keeps the accuracy of the real CIFAR-10 network with a quarter of its parameters": _keeps_accuracy,
    "M2(R) is better than H, with the same number of parameters and half the multiply-adds": _better_than_h,
    "Whitening improves C and H": _whitening,
    "A Transformer-XL over M2(R) matches R with 44 % of its parameters": _matches_r,
    "M2(R) needs about half of a real network's parameters for the same quality": _half_the_parameters,
}


def _range(fractions: list[float]) -> str:
    """The smallest and the largest of some fractions, in percent."""
    return f"{100 * min(fractions):.0f} to {share(max(fractions), 1)}"


def pruned_accuracy() -> str:
    """The accuracy of pruned networks: one row for each sparsity, one column for each network and unit."""
    found = study("cifar10-pruned")
    columns = {"R": ("R", "tuple")}
    columns |= {f"{name}, {unit}s": (name, unit) for name in ("M2R", "H") for unit in ("tuple", "component")}
    levels = sorted({group.sparsity for group in found.groups})
    cells = []
    for level in levels:
        by_kind = {(g.algebra, g.unit): g for g in found.groups if g.sparsity == level and g.criterion == "norm"}
        groups = [by_kind.get(kind) for kind in columns.values()]
        cells.append([percent(level), *(mean_and_deviation(g, with_seeds=False) if g else "" for g in groups)])
    return markdown_table(["sparsity", *columns], cells)


def pruned_costs() -> str:
    """The parameters that are not zero and the multiply-adds that are left, with pruned tuples."""
    found, cells = study("cifar10-pruned"), []
    for level in sorted({group.sparsity for group in found.groups}):
        here = {g.algebra: g for g in found.groups if (g.sparsity, g.unit, g.criterion) == (level, "tuple", "norm")}
        counts = [count for name in ("R", "M2R", "H") for count in (here[name].nonzero, here[name].multiplies_left)]
        cells.append([percent(level), *(NONE if count is None else amount(count) for count in counts)])
    headings = [f"{name}: {what}" for name in ("R", "M2R", "H") for what in ("parameters", "multiply-adds")]
    return markdown_table(["sparsity", *headings], cells)


def _whole(make: str) -> str:
    sheet = getattr(pruned, make)(study("cifar10-pruned"))
    return markdown_table(sheet.headings, [[cell.bold for cell in row] for row in sheet.rows], sheet.prose)


REGIONS: dict[str, Make] = {
    "readme-results": partial(
        cifar10, ("R", "C", "M2R", "H"), ("network", "parameters", "multiply-adds", "accuracy, paper", "accuracy, ours")
    ),
    "claims": claims,
    "cifar10": cifar10,
    "cifar10-ablations": ablations,
    "cifar10-settings": settings,
    "transformer_xl-short": texts,
    "transformer_xl-small": partial(at_equal_quality, "transformer_xl-small"),
    "char-lm-small": demo,
    "gru-short": partial(at_equal_quality, "gru-short"),
    "pruned-accuracy": pruned_accuracy,
    "pruned-costs": pruned_costs,
    "pruned-components": partial(_whole, "components_sheet"),
    "pruned-criteria": partial(_whole, "criteria_sheet"),
}
