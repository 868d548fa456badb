"""The commands that measure speed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import typer
from rich.text import Text

from algebranets import algebra as algebras
from algebranets.lab.cli.terminal import console, new_table, read_settings, say, show
from algebranets.product import Lowering

if TYPE_CHECKING:
    import torch

    from algebranets.lab.bench import Row, Run

app = typer.Typer(no_args_is_help=True, help="Measure speed, as ratios of what was timed in turn in one run.")

RowT = TypeVar("RowT")
_LOWERINGS = tuple(name for name in get_args(Lowering) if name != "reference")
#: No device holds more rows and features, or longer images and texts; torch can still count their bytes.
_MAX_SIZE, _MAX_LENGTH = 2**20, 2**16


def _known(names: list[str] | None) -> list[str] | None:
    for name in names or ():
        algebras.get(name)
    return names


def _one_of(option: str, choices: Iterable[str], given: Iterable[str] | None) -> None:
    for value in given or ():
        if value not in choices:
            raise ValueError(f"{option} must be one of {', '.join(choices)}; got {value!r}.")


_Algebras = Annotated[list[str] | None, typer.Option(callback=_known, help="Only these; give it several times.")]
_Widths = Annotated[
    list[int] | None, typer.Option(min=1, max=_MAX_SIZE, help="Features of a layer; give it several times.")
]
_Device = Annotated[str, typer.Option(help="cpu or cuda.")]
_Dtype = Annotated[str, typer.Option(help="float32, float64, or bfloat16 or float16 under autocast.")]
_Stored = Annotated[str, typer.Option(help="float32, float64, bfloat16 or float16: of parameters too.")]
_Rounds = Annotated[int, typer.Option(min=1, max=_MAX_SIZE, help="How often each layer is timed.")]
_Batch = Annotated[
    int | None, typer.Option(min=1, max=_MAX_SIZE, help="Rows of linear layers; 1/64 of it are images, 1/32 sequences.")
]
_Batches = Annotated[list[int] | None, typer.Option(min=1, max=_MAX_SIZE, help="Rows; give it several times.")]
_Images = Annotated[int | None, typer.Option(min=1, max=_MAX_SIZE, help="Images.")]
_Capture = Annotated[
    bool,
    typer.Option(help="On a GPU, replay both sides as CUDA graphs: at small sizes launches are measured otherwise."),
]
_Lowering = Annotated[str, typer.Option(help=f"How ours computes: {', '.join(_LOWERINGS)}.")]
_Save = Annotated[Path | None, typer.Option(help="Write the rows to this file, as JSON lines.")]


@app.command("layers")
def bench_layers(
    algebra: _Algebras = None,
    op: Annotated[list[str] | None, typer.Option(help="Only linear, conv2d or gru; give it several times.")] = None,
    width: _Widths = None,
    batch: _Batch = None,
    lowering: Annotated[
        list[str] | None, typer.Option(help=f"How ours computes: {', '.join(_LOWERINGS)}; give it several times.")
    ] = None,
    device: _Device = "cpu",
    dtype: _Dtype = "float32",
    rounds: _Rounds = 11,
    capture: _Capture = True,
    save: _Save = None,
) -> None:
    """Time torch.nn's layers and ours of the same width, forward and backward, in one run."""
    from algebranets.lab.bench import layers

    _one_of("--op", layers.OPS, op)
    _one_of("--lowering", _LOWERINGS, lowering)
    run = _checked(device, dtype, rounds, capture)
    how: Any = lowering or ("auto",)
    rows = layers.measure(run, algebra or layers.ALGEBRAS, op, width, batch, how)
    _print_rows(f"Forward and backward, {dtype}: torch.nn's time over ours", rows, save)


@app.command("decode")
def bench_decode(
    algebra: _Algebras = None,
    width: _Widths = None,
    batch: _Batches = None,
    num_layers: Annotated[
        int | None,
        typer.Option(min=1, max=_MAX_SIZE, help="Of the chain; else 8 or more, that fill a GPU's cache four times."),
    ] = None,
    lowering: _Lowering = "auto",
    device: _Device = "cpu",
    dtype: _Stored = "bfloat16",
    rounds: _Rounds = 11,
    capture: _Capture = True,
    save: _Save = None,
) -> None:
    """Time chains of linear layers on few rows, forward, weights read from memory each time."""
    from algebranets.lab.bench import decode

    _one_of("--lowering", _LOWERINGS, [lowering])
    run = _checked(device, dtype, rounds, capture)
    how: Any = lowering
    rows = decode.measure(run, algebra or decode.ALGEBRAS, width, batch or decode.BATCHES, how, num_layers)
    _print_rows(f"Decoding, {dtype}: torch.nn's time over ours", rows, save)


@app.command("sparse")
def bench_sparse(
    algebra: _Algebras = None,
    width: _Widths = None,
    batch: _Batches = None,
    sparsity: Annotated[
        list[float] | None, typer.Option(min=0, max=0.999, help="Shares of tuples that are zero; several times.")
    ] = None,
    device: _Device = "cpu",
    dtype: _Stored = "float32",
    rounds: _Rounds = 11,
    capture: _Capture = True,
    save: _Save = None,
) -> None:
    """Time tuple-sparse linear layers beside dense ones, real ones and torch's CSR, forward."""
    from algebranets.lab.bench import sparse

    run = _checked(device, dtype, rounds, capture)
    rows = sparse.measure(
        run, algebra or sparse.ALGEBRAS, width, batch or sparse.BATCHES, sparsity or sparse.SPARSITIES
    )
    _print_rows(f"Tuple-sparse layers, {dtype}: torch.nn's time over ours", rows, save)


@app.command("depthwise")
def bench_depthwise(
    algebra: _Algebras = None,
    batch: _Images = None,
    image_size: Annotated[int, typer.Option(min=32, max=_MAX_LENGTH, help="Of the network's input.")] = 224,
    lowering: _Lowering = "auto",
    device: _Device = "cpu",
    dtype: _Dtype = "float32",
    rounds: _Rounds = 11,
    capture: _Capture = True,
    save: _Save = None,
) -> None:
    """Time MobileNet-v1's depthwise convolutions, forward and backward."""
    from algebranets.lab.bench import depthwise

    _one_of("--lowering", _LOWERINGS, [lowering])
    run = _checked(device, dtype, rounds, capture)
    how: Any = lowering
    rows = depthwise.measure(run, algebra or depthwise.ALGEBRAS, batch, image_size, how)
    _print_rows(f"Depthwise, forward and backward, {dtype}: torch.nn's time over ours", rows, save)


@app.command("models")
def bench_models(
    model: Annotated[
        list[str] | None, typer.Option(help="Only this; give it several times. An unknown one lists them all.")
    ] = None,
    algebra: _Algebras = None,
    batch: Annotated[int | None, typer.Option(min=1, max=_MAX_SIZE, help="Images or texts.")] = None,
    size: Annotated[
        int | None, typer.Option(min=1, max=_MAX_LENGTH, help="Height of images, length of texts or of a prompt.")
    ] = None,
    options: Annotated[
        list[str] | None, typer.Option("--set", help="Options of the models, as in num_layers=2; several times.")
    ] = None,
    compile_: Annotated[bool, typer.Option("--compile/--no-compile", help="torch.compile both sides.")] = True,
    device: _Device = "cpu",
    dtype: _Dtype = "float32",
    rounds: _Rounds = 5,
    capture: _Capture = True,
    save: _Save = None,
) -> None:
    """Time networks of torch.nn's layers and of ours: a training step, without the optimiser's, and tokens."""
    from algebranets.lab.bench import models

    _one_of("--model", tuple(models.BENCHMARKS), model)
    run = _checked(device, dtype, rounds, capture)
    sizes = models.Sizes(batch, size, read_settings(options or []))
    rows = models.measure(run, algebra or models.ALGEBRAS, model, sizes, compile_)
    _print_rows(f"A training step, a token; {dtype}: torch.nn's time over ours", rows, save)


@app.command("peers")
def bench_peers(
    op: Annotated[list[str] | None, typer.Option(help="Only linear or conv2d; give it several times.")] = None,
    width: Annotated[int | None, typer.Option(min=1, max=_MAX_SIZE, help="Features of linear layers.")] = None,
    batch: _Batch = None,
    device: _Device = "cpu",
    dtype: _Dtype = "float32",
    rounds: _Rounds = 11,
    capture: _Capture = True,
    save: _Save = None,
) -> None:
    """Time other libraries' layers and ours of the same width, forward and backward; inputs are each one's own."""
    from algebranets.lab.bench import peers

    _one_of("--op", peers.OPS, op)
    run = _checked(device, dtype, rounds, capture)
    rows = peers.measure(run, tuple(op or peers.OPS), width, batch)
    _print_rows(f"Forward and backward, {dtype}: the other library's time over ours", rows, save)
    absent = peers.missing()
    if absent:
        say(f"left out, for they cannot be imported here: {', '.join(absent)}")


@app.command("zeros")
def bench_zeros(
    width: _Widths = None,
    batch: _Batch = 512,
    device: _Device = "cpu",
    dtype: _Dtype = "float32",
    rounds: _Rounds = 11,
    capture: _Capture = True,
    save: _Save = None,
) -> None:
    """Time products with and without their structural zeros: what the threshold in product/blocks rests on."""
    from algebranets.lab.bench import zeros

    run = _checked(device, dtype, rounds, capture)
    rows = zeros.measure(run, width or (256, 512, 1024), batch or 512)
    _print_rows(f"Forward and backward, {dtype}: the dense product's time over skipping zeros", rows, save)


@app.command("attention")
def bench_attention(
    algebra: _Algebras = None,
    window: Annotated[
        list[int] | None, typer.Option(min=1, max=_MAX_LENGTH, help="Positions seen; give it several times.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, max=_MAX_SIZE, help="Sequences.")] = 8,
    dtype: _Dtype = "bfloat16",
    rounds: _Rounds = 11,
    capture: _Capture = True,
    save: _Save = None,
) -> None:
    """Time Transformer-XL's attention on a GPU beside torch's with a mask and FlexAttention."""
    from algebranets.lab.bench import attention

    run = _checked("cuda", dtype, rounds, capture)
    rows = attention.measure(run, algebra or attention.ALGEBRAS, window or attention.WINDOWS, batch)
    _print_rows(f"Forward and backward, {dtype}: torch's time over our kernels'", rows, save)


@app.command("error")
def bench_error(
    algebra: _Algebras = None,
    width: _Widths = None,
    batch: Annotated[int, typer.Option(min=1, max=_MAX_SIZE, help="Rows.")] = 512,
    device: _Device = "cpu",
    save: _Save = None,
) -> None:
    """Measure how far lowerings round in each precision: ||y - exact|| / ||exact||, exact being float64."""
    from algebranets.lab.bench import error

    _checked(device, "float32", 1, False)
    table = new_table("Rounding of linear layers: ||y - exact|| / ||exact||")
    for heading in ("shape", "algebra", "precision"):
        table.add_column(heading)
    for heading in (*error.LOWERINGS, "growth"):
        table.add_column(heading, justify="right")
    done = _collected(error.measure(device, algebra or error.ALGEBRAS, width, batch=batch), save)
    for row in done:
        growth = f"{row.errors['bilinear'] / row.errors['blocks']:.2f}x"
        table.add_row(row.shape, row.algebra, row.dtype, *(f"{e:.2e}" for e in row.errors.values()), growth)
    show(table)
    console.print(f"{done[0].device}; torch {done[0].torch}; growth: bilinear over blocks.")
    if save is not None:
        say(f"rows written to {save}")


@app.command("figure")
def bench_figure(
    files: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, help="Files that --save wrote.")],
    out: Annotated[Path, typer.Option(help="The SVG file to write.")],
    op: Annotated[list[str] | None, typer.Option(help="Only these rows; give it several times.")] = None,
) -> None:
    """Draw the speed-ups in files of rows."""
    from algebranets.files import write
    from algebranets.lab import bench
    from algebranets.lab.bench import figure

    rows = [row for path in files for row in bench.load(path) if not op or row.op in op]
    write(out, figure.draw(rows))
    say(f"{len(rows)} rows drawn in {out}")


def _checked(device: str, dtype: str, rounds: int, capture: bool) -> Run:
    """A run on this device and in this precision, if they can be had."""
    import torch

    from algebranets.lab.bench import Run

    if dtype not in ("float32", "float64", "bfloat16", "float16"):
        raise ValueError(f"--dtype must be float32, float64, bfloat16 or float16; got {dtype!r}.")
    if device not in ("cpu", "cuda"):
        raise ValueError(f"--device must be cpu or cuda; got {device!r}.")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: torch sees no CUDA device here.")
    number: torch.dtype = getattr(torch, dtype)
    return Run(device, number, rounds, capture)


def _collected(rows: Iterable[RowT], save: Path | None) -> list[RowT]:
    """All rows, saved as they come."""
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


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if value >= 100 else f"{value:#.3g}"


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f}"


#: Headings, what a column says of a row, and a note on it; columns that say nothing are left out.
_COLUMNS: tuple[tuple[str, Callable[[Row], str], str], ...] = (
    ("layer", lambda row: row.op, ""),
    ("shape", lambda row: row.shape, ""),
    ("algebra", lambda row: row.algebra, ""),
    ("lowering", lambda row: row.lowering if row.lowering != "auto" else "", ""),
    ("against", lambda row: row.against if row.against != "torch.nn" else "", ""),
    ("chain", lambda row: str(row.chain) if row.chain > 1 else "", "layers timed as one"),
    ("param-\neters", lambda row: f"{row.parameters:.3f}", ""),
    ("speed-\nup", lambda row: _ratio(row.speedup), ""),
    ("middle\nhalf", lambda row: f"{row.spread[0]:.2f}-{row.spread[1]:.2f}", ""),
    ("over\ndense", lambda row: _ratio(row.speedup_over_dense), "over the dense layer of the same algebra"),
    ("over\nCSR", lambda row: _ratio(row.speedup_over_csr), "over a real matrix in torch's CSR with as many non-zeros"),
    ("same\nsize", lambda row: _ratio(row.speedup_same_parameters), "over the real layer with as many parameters"),
    ("loop", lambda row: _ratio(row.speedup_over_loop), "over the paper's example code"),
    ("ms", lambda row: _milliseconds(row.milliseconds), "ours"),
    ("torch's\na second", lambda row: _count(row.per_second and row.per_second / row.speedup), ""),
    (
        "ours\na second",
        lambda row: _count(row.per_second),
        "images, characters or tokens, with torch's layers and ours",
    ),
    ("copy\n%", lambda row: _percent(row.bandwidth), "of the bytes a second that a large copy moves here"),
    ("GEMM\n%", lambda row: _percent(row.compute), "of the multiply-adds a second of a large product here"),
)


def _print_rows(title: str, rows: Iterable[Row], save: Path | None) -> None:
    done = _collected(rows, save)
    table, columns, notes = new_table(title), [], []
    table.padding = 0  # there are many columns
    for heading, cell, note in _COLUMNS:
        cells = [cell(row) for row in done]
        if any(cells):
            columns.append(cells)
            left = heading in ("layer", "shape", "algebra", "lowering", "against")
            table.add_column(heading, justify="left" if left else "right", no_wrap=True)
            if note:
                notes.append(f"{' '.join(heading.replace('%', '').split())}: {note}")
    for line in zip(*columns, strict=True):
        table.add_row(*line)
    show(table)
    first, captured = done[0], [row.captured for row in done]
    graphs = ("as CUDA graphs", "some as CUDA graphs")[not all(captured)] if any(captured) else "without CUDA graphs"
    console.print(f"{first.device}; torch {first.torch}; medians of {first.rounds} rounds, timed in turn, {graphs}.")
    console.print(f"{'; '.join(notes)}.")
    if save is not None:
        say(f"rows written to {save}")
