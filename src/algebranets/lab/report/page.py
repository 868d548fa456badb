"""One page that holds the whole report, and the files beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from algebranets import files
from algebranets.lab.report import curves, figures, summary, svg
from algebranets.lab.report.groups import Group, Study, studies
from algebranets.lab.report.numbers import duration, quality
from algebranets.lab.report.parts import Cell, Sheet
from algebranets.lab.report.pruned import figures as pruned
from algebranets.lab.report.published import TITLES
from algebranets.lab.report.tables import sheets
from algebranets.lab.train.results import Result

#: Names and what they stand for.
Facts = tuple[tuple[str, str], ...]
#: How many networks one panel of learning curves can hold.
_READABLE = 10


@dataclass(frozen=True)
class Picture:
    """A figure of the page: panels by name, which lie side by side where there is room."""

    heading: str
    caption: str
    panels: dict[str, str]


def write(results: Iterable[Result], folder: Path) -> Path:
    """Write ``report.html``, its figures and tables and the results themselves to ``folder``; the page's path.

    ``rows.jsonl`` is all that is needed to make the same page again.
    """
    results = list(results)
    found = studies(results)
    if not found:
        raise ValueError("there must be at least one result to report; got none.")
    sections = [_section(study) for study in found]
    for study, section in zip(found, sections, strict=True):
        panels = {name: text for picture in section["pictures"] for name, text in picture.panels.items()}
        if "parameters" in panels:  # both costs in one figure
            panels["trade-off"] = figures.trade_off(study)
        if joint := pruned.quality_left(study):
            panels["pruning"] = joint
        if "curves-minutes" in panels:  # both clocks in one figure
            learning = curves.learning(study, _drawn(study), study.metric, "learning", _clocks(study))
            panels |= {"learning": learning} if learning else {}
        for name, text in panels.items():
            files.write(folder / f"{section['name']}-{name}.svg", svg.standalone(text))
    files.write(folder / "tables.md", markdown(found))
    files.write(folder / "rows.jsonl", "".join(json.dumps(asdict(result)) + "\n" for result in results))
    page = folder / "report.html"
    files.write(page, _html(sections))
    return page


def markdown(found: list[Study]) -> str:
    """Every table, as Markdown."""
    parts = []
    for study in found:
        parts += [f"## {_title(study)}\n", f"{summary.headline(study)}\n", *(s.markdown() for s in sheets(study))]
    return "\n".join(parts)


def _html(sections: list[dict[str, Any]]) -> str:
    """The page: all in one text that asks for no other file."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["svg"] = Markup  # matplotlib escapes what it draws
    environment.filters["unbroken"] = _unbroken
    template = environment.from_string((resources("algebranets.lab.report") / "page.html").read_text(encoding="utf-8"))
    return template.render(sections=sections)


def _section(study: Study) -> dict[str, Any]:
    environments = list(dict.fromkeys(_flat(run.environment) for run in _runs(study)))
    return {
        "name": re.sub(r"[^\w-]+", "-", study.recipe),  # names files and places in the page
        "title": _title(study),
        "headline": summary.headline(study),
        "cards": summary.cards(study),
        "sheets": sheets(study),
        "pictures": list(_pictures(study)),
        "departures": summary.departures(study),
        "runs": _runs_sheet(study, environments),
        "commands": list(dict.fromkeys(run.command for run in _runs(study))),
        "environments": environments,
        "settings": _settings(study),
    }


def _unbroken(text: str) -> str:
    """A number and what belongs to it stay on one line."""
    return re.sub(r"(?<=\d) (?=[%±MkG(])|(?<=±) ", "\u00a0", text)


def _title(study: Study) -> str:
    return TITLES.get(study.recipe, study.recipe)


def _runs(study: Study) -> list[Result]:
    return [run for group in study.groups for run in group.results]


def _flat(settings: Mapping[str, Any], within: str = "") -> Facts:
    """Nested settings by dotted names, as texts."""
    facts: list[tuple[str, str]] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            facts += _flat(value, f"{within}{key}.")
        else:
            facts.append((f"{within}{key}", value if isinstance(value, str) else json.dumps(value)))
    return tuple(facts)


def _settings(study: Study) -> list[tuple[str, Facts]]:
    """What all experiments share, then what each has of its own; seeds are in the table of runs."""
    names = [study.name(group) for group in study.groups]
    apart = [
        _flat({key: value for key, value in group.first.experiment.items() if key not in ("seed", "changes")})
        for group in study.groups
    ]
    shared = tuple(fact for fact in apart[0] if all(fact in facts for facts in apart))
    own = [(name, tuple(f for f in facts if f not in shared)) for name, facts in zip(names, apart, strict=True)]
    return [("All runs" if len(names) > 1 else names[0], shared), *((name, facts) for name, facts in own if facts)]


def _runs_sheet(study: Study, environments: list[Facts]) -> Sheet:
    """One line a run."""
    rows = []
    for group in study.groups:
        for run in group.results:
            cells = [study.name(group), str(run.seed), quality(run.value, run.metric), f"{run.steps:,}"]
            cells += [duration(run.seconds), *(str(run.environment.get(key, "–")) for key in ("device", "commit"))]
            cells.append(str(environments.index(_flat(run.environment)) + 1))
            rows.append(tuple(map(Cell, cells)))
    headings = ("network", "seed", study.metric, "steps", "time", "device", "commit", "environment")
    return Sheet("Runs", headings, tuple(rows))


def _pictures(study: Study) -> Iterator[Picture]:
    if study.finished and not study.is_of_pruning:  # what is left says more there
        caption = "Filled marks: mean over seeds, with the sample standard deviation; lines join widths of one algebra."
        if any(group.printed for group in study.rows):
            caption += (
                " Hollow marks: the paper's figure of the network a thin line leads to, at our count of multiply-adds."
            )
        yield Picture(
            "What quality costs", caption, {cost: figures.trade_off(study, (cost,)) for cost in figures.COSTS}
        )
    drawn = {measure.replace("_", "-"): pruned.quality_left(study, (measure,)) for measure in pruned.MEASURES}
    drawn["criteria"] = pruned.criteria(study)
    if found := {name: panel for name, panel in drawn.items() if panel}:
        caption = (
            "Mean over seeds, with the sample standard deviation; lines lead from the dense network to the most pruned "
            "one. Whole tuples are pruned, those of the smallest norm, where a name says nothing else."
        )
        yield Picture("Quality of pruned networks", caption, found)
    yield from _learning(study)


def _drawn(study: Study) -> tuple[Group, ...]:
    """Of which networks there are learning curves: the rows, those trained for longer or shorter, the recipe's pruned.

    Those that are pruned otherwise would be too many.
    """
    rows = (*study.rows, *study.lengths, *study.own_pruned)
    return rows if len(rows) <= _READABLE else tuple(group for group in rows if study.is_own_size(group))


def _clocks(study: Study) -> list[str]:
    return curves.clocks(_runs(study))


def _learning(study: Study) -> Iterator[Picture]:
    """The rows' curves, and those of the ablations, each beside the network it is compared with."""
    caption = "Thin lines: one seed each. Bold: their mean. The first, steep part may lie outside the frame."
    rows, clocks = _drawn(study), _clocks(study)
    panels = {}
    wanted = [("curves", study.metric, clocks[0]), ("curves-loss", curves.LOSS, clocks[0])]
    wanted[1:1] = [(f"curves-{clock}", study.metric, clock) for clock in clocks[1:]]
    for name, quantity, clock in wanted:
        if panel := curves.learning(study, rows, quantity, name, [clock]):
            panels[name] = panel
    if panels:
        omitted = (
            "" if all(group in rows for group in study.rows) else " Only networks of the recipe's own size are drawn."
        )
        yield Picture("Learning curves", caption + omitted, panels)
    variants = [group for group in study.ablations if group not in study.rows]
    panels = {}
    for usual in study.groups:
        compared = [group for group in variants if study.baseline(group) is usual]
        name = f"ablation-curves-{len(panels) + 1}"
        if compared and (panel := curves.learning(study, [usual, *compared], study.metric, name, clocks[:1])):
            panels[name] = panel
    if panels:
        yield Picture("Learning curves of the ablations", caption, panels)
