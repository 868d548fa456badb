"""An extension of griffe: doctests become code blocks, and comments with ``#:`` become docstrings of attributes."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sitegen.reference import as_markdown, comment_above


class Docstrings(griffe.Extension):
    """Prepares docstrings for Markdown, which would read the prompts of doctests as quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of one object, or make one from the comment of an attribute."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)
        elif obj.is_attribute and obj.lineno and isinstance(obj.filepath, Path):
            text = comment_above(_lines(obj.filepath), obj.lineno - 1)
            obj.docstring = griffe.Docstring(text, parent=obj) if text else None


@cache
def _lines(path: Path) -> list[str]:
    return [line.strip() for line in path.read_text().splitlines()]
