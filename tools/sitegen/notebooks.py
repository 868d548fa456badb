"""Notebooks as pages: their text and their code. They are stored without outputs."""

from __future__ import annotations

import json
from pathlib import Path


def page(path: Path, source: str) -> str:
    """A notebook as Markdown.

    Args:
        path: The notebook.
        source: The link to the notebook itself.
    """
    parts = [_cell(cell) for cell in json.loads(path.read_text())["cells"]]
    title, *rest = parts
    heading, _, opening = title.partition("\n")
    link = f"[Open or download the notebook]({source}), `{path.name}`."
    return "\n\n".join([heading, link, opening.strip(), *rest]) + "\n"


def _cell(cell: dict[str, object]) -> str:
    lines = cell["source"]
    text = "".join(lines) if isinstance(lines, list) else str(lines)
    return f"```python\n{text}\n```" if cell["cell_type"] == "code" else text
