"""Draws docs/assets/idea.svg: the real matrix of a layer from 4 to 4 features, over four algebras.

Run it with ``python tools/idea.py``.
"""

from __future__ import annotations

from pathlib import Path

from algebranets import files
from algebranets.algebra import M2R, Algebra, C, H, R

PAGE = Path(__file__).resolve().parent.parent / "docs" / "assets" / "idea.svg"
SIZE = 4  # features
CELL, GAP, TOP = 34, 44, 34
COLORS = (
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#ff9da7",
    "#9c755f", "#86bcb6", "#d37295", "#a0cbe8", "#8cd17d", "#b6992d", "#fabfd2", "#79706e",
)  # fmt: skip
STYLE = """\
<style>
  text { font: 13px system-ui, sans-serif; fill: #24292f; text-anchor: middle }
  .title { font-weight: 600; font-size: 15px }
  .number { fill: #111 }
  .zero { fill: none; stroke: #8c959f; stroke-dasharray: 2 3 }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .number { fill: #111 } }
</style>"""


def matrix(algebra: Algebra) -> list[list[int]]:
    """The real matrix of a weight from ``SIZE`` to ``SIZE`` features: 0, or plus or minus the number of an entry.

    Features are in the order in which layers store them, component by component.
    """
    tuples = SIZE // algebra.dim
    place = {component: position for position, component in enumerate(algebra.order)}
    rows = [[0] * SIZE for _ in range(SIZE)]
    for i, j, k, sign in algebra.terms:
        for out in range(tuples):
            for inp in range(tuples):
                number = 1 + (out * tuples + inp) * algebra.dim + i
                rows[place[k] * tuples + out][place[j] * tuples + inp] = sign * number
    return rows


def panel(algebra: Algebra, title: str, left: int) -> list[str]:
    """The matrix of one algebra, with a title above and its counts below."""
    rows = matrix(algebra)
    middle = left + SIZE * CELL // 2
    lines = [f'<text class="title" x="{middle}" y="{TOP - 12}">{title}</text>']
    for y, row in enumerate(rows):
        for x, entry in enumerate(row):
            at = f'x="{left + x * CELL + 1}" y="{TOP + y * CELL + 1}" width="{CELL - 2}" height="{CELL - 2}" rx="4"'
            if not entry:
                lines.append(f'<rect class="zero" {at}/>')
                continue
            lines.append(f'<rect fill="{COLORS[abs(entry) - 1]}" {at}/>')
            sign = "−" if entry < 0 else ""
            x_text, y_text = left + x * CELL + CELL // 2, TOP + y * CELL + CELL // 2 + 5
            lines.append(f'<text class="number" x="{x_text}" y="{y_text}">{sign}w{abs(entry)}</text>')
    entries = [abs(entry) for row in rows for entry in row if entry]
    below = TOP + SIZE * CELL
    lines.append(f'<text x="{middle}" y="{below + 22}">{len(set(entries))} parameters</text>')
    lines.append(f'<text x="{middle}" y="{below + 40}">{len(entries)} multiplies</text>')
    return lines


def render() -> str:
    """The picture, as the text of an SVG file."""
    panels = ((R, "R, as in torch.nn"), (C, "C"), (H, "H"), (M2R, "M2(R)"))
    width, height = len(panels) * (SIZE * CELL + GAP), TOP + SIZE * CELL + 54
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-label="The weights of a layer from 4 to 4 features over R, C, H and M2(R)">',
        STYLE,
    ]
    for position, (algebra, title) in enumerate(panels):
        lines += panel(algebra, title, GAP // 2 + position * (SIZE * CELL + GAP))
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    files.write(PAGE, render())
