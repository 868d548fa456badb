"""Writes a report: for each study a self-contained page, and its figures, tables and rows as separate files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from algebranets import files
from algebranets.lab.drawing import svg
from algebranets.lab.report import summary
from algebranets.lab.report.group import Group
from algebranets.lab.report.markdown import markdown, title
from algebranets.lab.report.numbers import NONE, duration, interval, quality
from algebranets.lab.report.parts import INTERVAL, Cell, Sheet
from algebranets.lab.report.pictures import JOINT, pictures
from algebranets.lab.report.study import Study, studies
from algebranets.lab.report.tables import sheets
from algebranets.lab.report.words import environment
from algebranets.lab.train.results import Result

#: The name of a study's page.
PAGE = "report.html"
#: Pairs of a name and its value, as text.
Facts = tuple[tuple[str, str], ...]


def write(results: Iterable[Result], folder: Path) -> Path:
    """Write a report on finished runs: for each recipe a folder with a page, its figures, tables and rows.

    The folder of a recipe has its name and holds ``report.html``, the figures as SVG, ``tables.md`` and ``rows.jsonl``.
    ``algebranets report rows.jsonl`` writes the same folder again. If there are several recipes, ``index.html`` in
    ``folder`` lists their pages. The ``index.html`` of an earlier report is replaced, also if there is one recipe.

    Args:
        results: Finished runs of one or several recipes.
        folder: The folder to write to; created if it does not exist.

    Returns:
        The path of the page, or of ``index.html`` if there are several pages.
    """
    found = studies(results)
    if not found:
        raise ValueError("there must be at least one result to report; got none.")
    sections = [_section(study) for study in found]
    names = [section["name"] for section in sections]
    if len(set(names)) < len(names):
        recipes = ", ".join(study.recipe for study in found)
        raise ValueError(f"the names of recipes must differ in letters or digits; got {recipes}. Report them apart.")
    index = folder / "index.html"
    is_ours = index.exists() and "<title>AlgebraNets report" in index.read_text(errors="replace")
    if len(found) > 1 and index.exists() and not is_ours:
        raise ValueError(
            f"the reports on several recipes need {index} for a list of them, but it is not the list of an earlier "
            "report. Choose another folder with --out, or remove the file."
        )
    facts = {"site": documentation_site(), "has_index": len(found) > 1 or is_ours}
    for study, section in zip(found, sections, strict=True):
        _write_study(study, section, folder / section["name"], facts)
    if facts["has_index"]:
        files.write(index, environment().get_template("index.html").render(sections=sections, page=PAGE, **facts))
    return index if len(found) > 1 else folder / names[0] / PAGE


def _write_study(study: Study, section: dict[str, Any], folder: Path, facts: dict[str, Any]) -> None:
    panels = {name: text for picture in section["pictures"] for name, text in picture.panels.items()}
    joint = {name: draw(study) for name, draw in JOINT.items()}
    for name, text in (panels | joint).items():
        if text is not None:
            files.write(folder / f"{section['name']}-{name}.svg", svg.standalone(text))
    files.write(folder / "tables.md", markdown(study))
    files.write(folder / "rows.jsonl", "".join(json.dumps(asdict(run)) + "\n" for run in study.runs))
    files.write(folder / PAGE, environment().get_template("page.html").render(section=section, **facts))


def documentation_site() -> str:
    """The address of the documentation site, from the metadata of the package; empty if it names none."""
    try:
        found = metadata.metadata("algebranets").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:  # the package is used from a folder, without an installation
        return ""
    addresses: dict[str, str] = dict(entry.split(", ", 1) for entry in found)
    return addresses.get("Documentation", addresses.get("Homepage", ""))


def _section(study: Study) -> dict[str, Any]:
    environments = list(dict.fromkeys(_flat(run.environment) for run in study.runs))
    return {
        "name": re.sub(r"[^\w-]+", "-", study.recipe),  # in file names and anchors
        "title": title(study),
        "headline": summary.headline(study),
        "cards": summary.cards(study),
        "sheets": sheets(study),
        "pictures": list(pictures(study)),
        "departures": summary.departures(study),
        "runs": _runs_sheet(study, environments),
        "commands": list(dict.fromkeys(run.command for run in study.runs)),
        "environments": environments,
        "settings": _settings(study),
    }


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Facts:
    """Flatten nested settings into pairs of a dotted name and a text."""
    facts: list[tuple[str, str]] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            facts += _flat(value, f"{prefix}{key}.")
        else:
            facts.append((f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value)))
    return tuple(facts)


def _settings(study: Study) -> list[tuple[str, Facts]]:
    """The settings that all networks share, then those of each network. Seeds are in the table of runs."""
    names = [study.name(group) for group in study.groups]
    all_facts = [
        _flat({key: value for key, value in group.first.experiment.items() if key not in ("seed", "changes")})
        for group in study.groups
    ]
    shared = tuple(fact for fact in all_facts[0] if all(fact in facts for facts in all_facts))
    own = [(name, tuple(f for f in facts if f not in shared)) for name, facts in zip(names, all_facts, strict=True)]
    return [("All runs" if len(names) > 1 else names[0], shared), *((name, facts) for name, facts in own if facts)]


def _runs_sheet(study: Study, environments: list[Facts]) -> Sheet:
    """The table of runs, one row per run."""
    rows = []
    for group in study.groups:
        for run in group.results:
            alone = Group((run,))
            cells = [study.name(group), quality(run.value, run.metric), interval(alone.interval, run.metric)]
            cells += [str(run.seed), f"{run.steps:,}"]
            cells += [duration(run.seconds), *(str(run.environment.get(key, NONE)) for key in ("device", "commit"))]
            cells.append(str(environments.index(_flat(run.environment)) + 1))
            rows.append(tuple(map(Cell, cells)))
    headings = ("network", study.metric, INTERVAL, "seed", "steps", "time", "device", "commit", "environment")
    return Sheet("Runs", headings, tuple(rows)).compact()
