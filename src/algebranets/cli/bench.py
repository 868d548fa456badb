"""The commands that measure speed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from algebranets.cli.terminal import console, get_algebra, new_table, show

if TYPE_CHECKING:
    import torch

    from algebranets import bench

app = typer.Typer(no_args_is_help=True, help="Measure speed, as ratios to torch.nn in one run.")


def _known(names: list[str] | None) -> list[str] | None:
    for name in names or ():
        get_algebra(name)
    return names


_Algebras = Annotated[list[str] | None, typer.Option(callback=_known, help="Only these; give it several times.")]
_Device = Annotated[str, typer.Option(help="cpu or cuda.")]
_Dtype = Annotated[str, typer.Option(help="float32, float64, or bfloat16 or float16 under autocast.")]
_Rounds = Annotated[int, typer.Option(min=1, help="Timed repetitions.")]
_Batch = Annotated[int, typer.Option(min=1, help="Rows of linear layers; 1/64 of it are images, 1/32 sequences.")]
_Save = Annotated[Path | None, typer.Option(help="Write the rows to this file, as JSON lines.")]


@app.command("layers")
def bench_layers(
    algebra: _Algebras = None,
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

    unknown = set(op or ()) - set(bench.OPS)
    if unknown:
        raise typer.BadParameter(f"--op must be one of {', '.join(bench.OPS)}; got {unknown.pop()!r}.")
    number = _checked(device, dtype)
    rows = bench.layers(algebra or bench.ALGEBRAS, op or bench.OPS, device, number, rounds, width, batch)
    _print_rows(f"Forward and backward, {dtype}: torch.nn's time over ours", rows, rounds, save)


@app.command("zeros")
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


@app.command("attention")
def bench_attention(
    algebra: _Algebras = None,
    window: Annotated[list[int] | None, typer.Option(help="Positions seen; give it several times.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Sequences.")] = 8,
    dtype: _Dtype = "bfloat16",
    rounds: _Rounds = 11,
    save: _Save = None,
) -> None:
    """Time Transformer-XL's attention on a GPU: through FlexAttention, and through torch's with a mask."""
    from algebranets import bench

    number = _checked("cuda", dtype)
    rows = bench.attention(algebra or ("R", "M2R"), number, rounds, window or (512, 1536), batch)
    _print_rows(f"Forward and backward, {dtype}: the masked kernel's time over FlexAttention's", rows, rounds, save)


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

    table = new_table(title)
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
    show(table)
    console.print(f"{done[0].device}; torch {done[0].torch}; medians of {rounds} pairs, each pair timed in turn.")
    if save is not None:
        bench.save(done, save)
        console.print(f"rows written to {save}")
