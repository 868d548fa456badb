"""Tables of measured rows on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.text import Text

from algebranets.lab.cli.terminal import console, new_table, say, show

if TYPE_CHECKING:
    from algebranets.lab.bench import Row
    from algebranets.lab.bench.error import ErrorRow

RowT = TypeVar("RowT")


def collect(rows: Iterable[RowT], save: Path | None) -> list[RowT]:
    """Measure all rows, and save them after each one."""
    from algebranets.lab import bench

    done: list[RowT] = []
    with console.status("measuring") as status:
        for row in rows:
            done.append(row)
            status.update(Text(f"measured {row.op} {row.shape} over {row.algebra}"))  # type: ignore[attr-defined]
            if save is not None:
                bench.save(done, save)
    return done


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


def _rough_ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}x"


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if value >= 100 else f"{value:#.3g}"


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f}"


#: Columns: the heading, the text for a row, and a note. Columns without any text are left out.
_COLUMNS: tuple[tuple[str, Callable[[Row], str], str], ...] = (
    ("layer", lambda row: row.op, ""),
    ("shape", lambda row: row.shape, ""),
    ("algebra", lambda row: row.algebra, ""),
    ("lowering", lambda row: row.lowering if row.lowering != "auto" else "", ""),
    ("against", lambda row: row.against if row.against != "torch.nn" else "", ""),
    ("chain", lambda row: str(row.chain) if row.chain > 1 else "", "number of layers timed as one"),
    ("size", lambda row: f"{row.parameters:.3f}", "our parameters, as a share of the other layer's"),
    ("times\nfaster", lambda row: _ratio(row.speedup), "the other layer's time over ours"),
    ("middle\nhalf", lambda row: f"{row.spread[0]:.2f}-{row.spread[1]:.2f}", ""),
    ("over\ndense", lambda row: _ratio(row.speedup_over_dense), "over the dense layer of the same algebra"),
    ("over\nCSR", lambda row: _ratio(row.speedup_over_csr), "over torch's CSR matrix with as many nonzeros"),
    ("same\nsize", lambda row: _ratio(row.speedup_same_parameters), "over the real layer with as many parameters"),
    ("loop", lambda row: _rough_ratio(row.speedup_over_loop), "over the paper's example code"),
    ("ms", lambda row: _milliseconds(row.milliseconds), "our time"),
    ("torch's\na second", lambda row: _count(row.per_second and row.per_second / row.speedup), ""),
    ("ours\na second", lambda row: _count(row.per_second), "images, characters or tokens per second"),
    ("copy\n%", lambda row: _percent(row.bandwidth), "bytes per second, as a share of a large copy's"),
    ("GEMM\n%", lambda row: _percent(row.compute), "multiply-adds per second, as a share of a large matrix product's"),
)
_LEFT = ("layer", "shape", "algebra", "lowering", "against")


def print_rows(title: str, rows: Iterable[Row], save: Path | None) -> None:
    """Measure rows, then print them as a table with notes.

    Args:
        title: The title of the table.
        rows: The rows, as an iterator that measures each row when it yields it.
        save: The file to save them in, as JSON lines, or None.
    """
    done = collect(rows, save)
    table, columns, notes = new_table(title), [], []
    table.padding, table.show_edge = 0, False  # there are many columns
    for heading, cell, note in _COLUMNS:
        cells = [cell(row) for row in done]
        if any(cells):
            columns.append(cells)
            table.add_column(heading, justify="left" if heading in _LEFT else "right", no_wrap=True)
            if note:
                notes.append(f"{' '.join(heading.replace('%', '').split())}: {note}")
    for line in zip(*columns, strict=True):
        table.add_row(*line)
    show(table)
    first, captured = done[0], [row.captured for row in done]
    graphs = ("as CUDA graphs", "some as CUDA graphs")[not all(captured)] if any(captured) else "without CUDA graphs"
    rounds = "1 round" if first.rounds == 1 else f"medians of {first.rounds} rounds"
    console.print(f"{first.device}; torch {first.torch}; {rounds}, timed in turn, {graphs}.")
    console.print(f"{'; '.join(notes)}.")
    if save is not None:
        say(f"rows written to {save}")


def print_errors(rows: Sequence[ErrorRow], save: Path | None) -> None:
    """Print rounding errors as a table."""
    from algebranets.lab.bench import error

    table = new_table("Rounding errors of linear layers: ||y - exact|| / ||exact||")
    for heading in ("shape", "algebra", "precision"):
        table.add_column(heading)
    for heading in (*error.LOWERINGS, "growth"):
        table.add_column(heading, justify="right")
    for row in rows:
        growth = f"{row.errors['bilinear'] / row.errors['blocks']:.2f}x"
        table.add_row(row.shape, row.algebra, row.dtype, *(f"{e:.2e}" for e in row.errors.values()), growth)
    show(table)
    console.print(f"{rows[0].device}; torch {rows[0].torch}; growth: bilinear over blocks.")
    if save is not None:
        say(f"rows written to {save}")
