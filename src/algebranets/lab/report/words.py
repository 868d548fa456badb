"""Sentences of the report, rendered from the package's templates."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from algebranets.lab.report import numbers
from algebranets.lab.report.significance import LEVEL


def paragraphs(template: str, **facts: Any) -> list[str]:
    """The paragraphs of a text template, each on one line.

    >>> paragraphs("notes/ablations", metric="accuracy", has_claims=True)[0]
    "The paper's statements are about ResNet-50 on ImageNet, unless they name a table."

    Args:
        template: The template's name, without its ending ``.j2``. Blank lines in it separate paragraphs.
        facts: The values that the template uses, by name.
    """
    text = environment().overlay(finalize=_on_one_line).get_template(f"{template}.j2").render(facts)
    found = (part.strip() for part in re.split(r"\n[ \t]*\n", text))
    return [re.sub(r"[ \t]*\n[ \t]*", " ", part) for part in found if part]


def sentence(template: str, **facts: Any) -> str:
    """The only paragraph of a text template, on one line; see `paragraphs`."""
    (only,) = paragraphs(template, **facts)
    return only


@cache
def environment() -> Environment:
    """The templates, with filters that format numbers. HTML is escaped, and a missing value is an error."""
    made = Environment(
        loader=PackageLoader("algebranets.lab.report"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for write in (
        numbers.amount, numbers.difference, numbers.duration, numbers.metric_name, numbers.percent, numbers.quality,
    ):  # fmt: skip
        made.filters[write.__name__] = write
    made.filters["svg"] = Markup  # matplotlib escapes what it draws
    made.filters["unbroken"] = _unbroken
    made.globals["level"] = LEVEL
    return made


def _on_one_line(value: Any) -> Any:
    """Remove line breaks from a value, because they would look like those of the template."""
    return value.replace("\n", " ") if isinstance(value, str) else value


def _unbroken(text: str) -> str:
    """Put no-break spaces between numbers and their units, and into intervals.

    >>> _unbroken("94.18 ± 0.09 (3 seeds)").split(" ")[0].split(), _unbroken("1 to 2, 17 min").split(" ")
    (['94.18', '±', '0.09'], ['1\\xa0to\\xa02,', '17\\xa0min'])
    """
    return re.sub(r"(?<=\d) (?=[%±]|(?:[MkGsh]|min|seeds?|to)\b)|(?<=±) |(?<=\bto) (?=\d)", "\u00a0", text)
