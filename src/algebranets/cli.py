"""The command line: ``algebranets --help``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from algebranets import __version__
from algebranets import algebra as algebras
from algebranets.algebra import Algebra

if TYPE_CHECKING:
    import torch

    from algebranets import bench

app = typer.Typer(no_args_is_help=True, add_completion=False)
bench_app = typer.Typer(no_args_is_help=True, help="Measure speed, as ratios to torch.nn in one run.")
app.add_typer(bench_app, name="bench")
console = Console()

#: The rows of the paper's Table 1.
_PAPER_NAMES = {
    "R": "real numbers",
    "C": "complex numbers",
    "M2R": "2 x 2 matrices",
    "M3R": "3 x 3 matrices",
    "M4R": "4 x 4 matrices",
    "M2C": "2 x 2 over C",
    "H": "quaternions",
    "diagonal(4)": "diagonal, N = 4",
    "DUAL": "dual numbers",
    "CROSS": "cross product",
}


def _print_version(wanted: bool) -> None:
    if wanted:
        console.print(f"algebranets {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Neural networks over algebras."""


@app.command("algebras")
def list_algebras() -> None:
    """Print the paper's Table 1, derived from the multiplication tables, and how each product is lowered."""
    table = _table("Algebras: Table 1 of the paper, and the blocks of left multiplication")
    table.add_column("algebra")
    table.add_column("")
    table.add_column("weight\nsize", justify="right")
    table.add_column("weight\nreuse", justify="right")
    table.add_column("multiplies :\nvalues loaded", justify="right")
    table.add_column("blocks")
    for algebra in algebras.CATALOGUE.values():
        table.add_row(
            algebra.name,
            _PAPER_NAMES[algebra.name],
            str(algebra.dim),
            str(algebra.weight_reuse or "-"),
            f"{algebra.multiplies} : {algebra.values_loaded}",
            _blocks(algebra),
        )
    console.print(table)
    console.print("One of them, or your own: [bold]algebranets algebra NAME-or-FILE[/]")


@app.command("algebra")
def show_algebra(
    name: Annotated[
        str, typer.Argument(help="A name, a constructor as in 'clifford(3,0)', or a .toml/.json/.txt file.")
    ],
) -> None:
    """Print an algebra's multiplication table, its properties and how its products are lowered."""
    algebra = _get(name)
    if algebra.dim <= 16:
        console.print(algebra.table(), highlight=False, markup=False)
    else:
        console.print(f"{algebra.name}: {algebra.dim} components (the table is too large to print)")
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    for key, value in _facts(algebra):
        facts.add_row(key, value)
    console.print()
    console.print(facts)


_Device = Annotated[str, typer.Option(help="cpu or cuda.")]
_Dtype = Annotated[str, typer.Option(help="float32, float64, or bfloat16 or float16 under autocast.")]
_Rounds = Annotated[int, typer.Option(min=1, help="Timed repetitions.")]
_Batch = Annotated[int, typer.Option(min=1, help="Rows of linear layers; 1/64 of it are images, 1/32 sequences.")]
_Save = Annotated[Path | None, typer.Option(help="Write the rows to this file, as JSON lines.")]


@bench_app.command("layers")
def bench_layers(
    algebra: Annotated[list[str] | None, typer.Option(help="Only these; give it several times.")] = None,
    op: Annotated[list[str] | None, typer.Option(help="Only linear, conv2d or gru; give it several times.")] = None,
    width: Annotated[int, typer.Option(min=1, help="Features of the linear and GRU layers.")] = 1024,
    batch: _Batch = 512,
    device: _Device = "cpu",
    dtype: _Dtype = "float32",
    rounds: _Rounds = 11,
    save: _Save = None,
) -> None:
    """Time torch.nn's layers and ours of the same width, forward and backward, in one run."""
    from algebranets import bench

    for name in algebra or ():
        _get(name)
    unknown = set(op or ()) - set(bench.OPS)
    if unknown:
        raise typer.BadParameter(f"--op must be one of {', '.join(bench.OPS)}; got {unknown.pop()!r}.")
    number = _checked(device, dtype)
    rows = bench.layers(algebra or bench.ALGEBRAS, op or bench.OPS, device, number, rounds, width, batch)
    _print_rows(f"Forward and backward, {dtype}: torch.nn's time over ours", rows, rounds, save)


@bench_app.command("zeros")
def bench_zeros(
    width: Annotated[list[int] | None, typer.Option(help="Of the linear layers; give it several times.")] = None,
    batch: _Batch = 512,
    device: _Device = "cpu",
    dtype: _Dtype = "float32",
    rounds: _Rounds = 11,
    save: _Save = None,
) -> None:
    """Time products with and without their structural zeros: what the threshold in product/blocks rests on."""
    from algebranets import bench

    number = _checked(device, dtype)
    rows = bench.zeros(device, number, rounds, width or (256, 512, 1024), batch)
    _print_rows(f"Forward and backward, {dtype}: the dense product's time over skipping zeros", rows, rounds, save)


def _checked(device: str, dtype: str) -> torch.dtype:
    """The dtype of this name, if it and the device can be had."""
    import torch

    if dtype not in ("float32", "float64", "bfloat16", "float16"):
        raise typer.BadParameter(f"--dtype must be float32, float64, bfloat16 or float16; got {dtype!r}.")
    if device not in ("cpu", "cuda"):
        raise typer.BadParameter(f"--device must be cpu or cuda; got {device!r}.")
    if device == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter("--device cuda: torch sees no CUDA device here.")
    number: torch.dtype = getattr(torch, dtype)
    return number


def _print_rows(title: str, rows: Iterable[bench.Row], rounds: int, save: Path | None) -> None:
    from algebranets import bench

    table = _table(title)
    for heading in ("layer", "shape", "algebra", "parameters", "speed-up", "middle half"):
        table.add_column(heading, justify="left" if heading in ("layer", "shape", "algebra") else "right")
    done = []
    with console.status("measuring") as status:
        for row in rows:
            done.append(row)
            status.update(f"measured {row.op} {row.shape} over {row.algebra}")
            low, high = row.spread
            ratios = (f"{row.parameters:.3f}x", f"{row.speedup:.2f}x", f"{low:.2f} - {high:.2f}")
            table.add_row(row.op, row.shape, row.algebra, *ratios)
    console.print(table)
    console.print(f"{done[0].device}; torch {done[0].torch}; medians of {rounds} pairs, each pair timed in turn.")
    if save is not None:
        bench.save(done, save)
        console.print(f"rows written to {save}")


def _table(title: str) -> Table:
    return Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", padding=(0, 1, 0, 0), pad_edge=False)


def _get(name: str) -> Algebra:
    """The algebra of this name, or the end of the program with what is wrong."""
    try:
        return algebras.get(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _blocks(algebra: Algebra) -> str:
    """Such as ``2 copies of 2 x 2``; equal sizes of different blocks are counted."""
    kinds = Counter(
        (f"{block.num_copies} copies of " if block.num_copies > 1 else "") + f"{block.size} x {block.size}"
        for block in algebra.blocks
    )
    return ", ".join(f"{count} kinds of {kind}" if count > 1 else kind for kind, count in kinds.items())


def _facts(algebra: Algebra) -> list[tuple[str, str]]:
    def yes(value: bool) -> str:
        return "yes" if value else "no"

    unit = "none" if algebra.unit is None else "(" + ", ".join(map(str, algebra.unit)) + ")"
    waste = sum(block.waste * block.size**2 * block.num_copies for block in algebra.blocks)
    real = sum(block.size**2 * block.num_copies for block in algebra.blocks)
    skipped = f", {round(waste)} of them structural zeros that large layers skip" if waste else ""
    expanded = "the stored weight itself" if algebra.folded else "laid out from the weight in each forward"
    return [
        ("weight size", str(algebra.dim)),
        ("weight reuse", str(algebra.weight_reuse or "differs between components")),
        ("multiplies : values loaded", f"{algebra.multiplies} : {algebra.values_loaded}"),
        ("unit", unit),
        ("associative", yes(algebra.associative)),
        ("commutative", yes(algebra.commutative)),
        ("conjugation", yes(algebra.conjugation is not None)),
        ("stored order", " ".join(algebra.components[k] for k in algebra.order)),
        ("lowering blocks (auto)", f"{_blocks(algebra)}; {real} multiplies a product{skipped}; {expanded}"),
        ("lowering reference", "the sum over the table, for checking"),
    ]
