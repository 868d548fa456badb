"""Matplotlib figures as SVG, in the text color of the page around them."""

from __future__ import annotations

import io
import re
from html import escape

from matplotlib.figure import Figure

from algebranets.lab.drawing.style import INK, house_style

_STANDALONE = (
    "<style>svg { color: #1d2126; background: #ffffff; font-family: system-ui, sans-serif } "
    "text { font-family: inherit !important } "
    "@media (prefers-color-scheme: dark) { svg { color: #e6e8ea; background: #1b1f25 } }</style>"
)


def render(figure: Figure, name: str, description: str) -> str:
    """The figure as an ``<svg>`` element of a page.

    Args:
        figure: The figure.
        name: A prefix of all ids in the figure, so that they differ from those of other figures on the page.
        description: The text that screen readers read.
    """
    buffer = io.StringIO()
    with house_style():
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.S)
    prefix = re.sub(r"\W+", "-", name)
    for reference in ('id="', "url(#", 'href="#'):
        text = text.replace(reference, f"{reference}{prefix}-")
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(description)}"', 1)


def standalone(svg: str) -> str:
    """Turn the result of `render` into the text of an SVG file, which follows the reader's light or dark mode."""
    opening = svg.index(">") + 1
    return f'<?xml version="1.0" encoding="utf-8"?>\n{svg[:opening]}{_STANDALONE}{svg[opening:]}'
