"""Writes all generated parts of the README and the docs: tables, figures, and docs/contributing/tree.md.

    python tools/write_docs.py

Tables are regions of Markdown files (`tools/sitegen/regions.py`), made from the rows in results/ and benchmarks/ and
from the package. The build of the site makes the same parts again. A test compares them with the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sitegen import figures, regions, tree
from sitegen.contents import REGIONS

from algebranets import files

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Write every part that differs from its file."""
    for name in figures.FIGURES:
        path = figures.FOLDER / f"{name}.svg"
        text = figures.as_file(name)
        if not path.exists() or figures.difference(path.read_text(), text):
            files.write(path, text)
            print(f"wrote {path.relative_to(ROOT)}")
    for path, text in (*written(), (tree.PAGE, tree.render())):
        if not path.exists() or path.read_text() != text:
            files.write(path, text)
            print(f"wrote {path.relative_to(ROOT)}")


def written() -> Iterator[tuple[Path, str]]:
    """Yield every Markdown file that has regions, with the text that it must have."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = path.read_text()
        if regions.names(text):
            yield path, regions.fill(text, REGIONS, path.relative_to(ROOT).as_posix())


if __name__ == "__main__":
    main()
