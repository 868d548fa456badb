"""Reads the boxes in which commands print errors."""

from rich.cells import cell_len


def message_in_box(stderr: str) -> str:
    """Return the text of the error box at the end of standard error. Fails if there is none, or if it is not whole."""
    lines = stderr.splitlines()
    first = max((i for i, line in enumerate(lines) if line.startswith("╭─ Error ─")), default=None)
    assert first is not None, f"no error box in {stderr!r}"
    top, *inner, bottom = lines[first:]
    assert top.endswith("─╮")
    assert (bottom[0], bottom[-1]) == ("╰", "╯"), stderr
    for line in inner:
        assert (line[0], line[-1]) == ("│", "│"), stderr
        # Bytes that are not text are printed as escapes, which are longer than typer expects.
        assert cell_len(line) == len(top) or "\\udc" in line, stderr
    return " ".join(line[1:-1].strip() for line in inner)


def without_spaces(text: str) -> str:
    """Return the text without any space. A word that is longer than a box is broken."""
    return "".join(text.split())
