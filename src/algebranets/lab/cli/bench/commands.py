"""The benchmark commands, each with its own options."""

# `add_command` reads the annotations of options, so they are not strings here. Those of `Run` and `Row` are strings,
# because importing these classes imports torch.

from typing import TYPE_CHECKING, Any

import typer

from algebranets import checks
from algebranets.lab.cli.bench import options as o
from algebranets.lab.cli.bench.command import add_command, check_each, make_run
from algebranets.lab.cli.bench.table import collect, print_errors
from algebranets.lab.cli.terminal import read_settings, say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from algebranets.lab.bench import Row, Run

app = typer.Typer(
    no_args_is_help=True, help="Measure speed as a ratio: torch's layer and ours are timed in turn, in one run."
)


@add_command(app, "Forward and backward, {dtype}: torch.nn's time over ours")
def layers(
    run: "Run",
    algebra: o.Algebras = None,
    op: o.LayerOps = None,
    width: o.Widths = None,
    batch: o.Rows = None,
    lowering: o.Lowerings = None,
) -> "Iterable[Row]":
    """Time torch.nn's layers and ours of the same width, forward and backward."""
    from algebranets.lab.bench import layers

    check_each("--op", op, layers.OPS)
    check_each("--lowering", lowering, o.LOWERINGS)
    lowerings: Any = lowering or ("auto",)
    return layers.measure(run, algebra or layers.ALGEBRAS, op, width, batch, lowerings)


@add_command(app, "Decoding, {dtype}: torch.nn's time over ours", dtype="bfloat16", dtype_option=o.Stored)
def decode(
    run: "Run",
    algebra: o.Algebras = None,
    width: o.Widths = None,
    batch: o.Batches = None,
    num_layers: o.NumLayers = None,
    lowering: o.OneLowering = "auto",
    weights: o.Weights = None,
) -> "Iterable[Row]":
    """Time chains of linear layers on few rows, forward only. Weights are read from memory each time."""
    from algebranets.lab.bench import decode

    how: Any = checks.one_of("--lowering", lowering, o.LOWERINGS)
    if weights is not None:
        checks.one_of("--weights", weights, o.WEIGHTS)
    return decode.measure(run, algebra or decode.ALGEBRAS, width, batch or decode.BATCHES, how, num_layers, weights)


@add_command(app, "Tuple-sparse layers, {dtype}: torch.nn's time over ours", dtype_option=o.Stored)
def sparse(
    run: "Run",
    algebra: o.Algebras = None,
    width: o.Widths = None,
    batch: o.Batches = None,
    sparsity: o.Sparsities = None,
    keep_dense: o.KeepDense = False,
) -> "Iterable[Row]":
    """Time tuple-sparse linear layers, dense ones, real ones and torch's CSR matrices, forward only."""
    from algebranets.lab.bench import sparse

    return sparse.measure(
        run, algebra or sparse.ALGEBRAS, width, batch or sparse.BATCHES, sparsity or sparse.SPARSITIES, keep_dense
    )


@add_command(app, "Depthwise, forward and backward, {dtype}: torch.nn's time over ours")
def depthwise(
    run: "Run",
    algebra: o.Algebras = None,
    batch: o.NumImages = None,
    image_size: o.ImageSize = 224,
    lowering: o.OneLowering = "auto",
) -> "Iterable[Row]":
    """Time MobileNet-v1's depthwise convolutions, forward and backward."""
    from algebranets.lab.bench import depthwise

    how: Any = checks.one_of("--lowering", lowering, o.LOWERINGS)
    return depthwise.measure(run, algebra or depthwise.ALGEBRAS, batch, image_size, how)


@add_command(app, "A training step, or a token, {dtype}: torch.nn's time over ours", rounds=5)
def models(
    run: "Run",
    model: o.Models = None,
    algebra: o.Algebras = None,
    batch: o.NumInputs = None,
    size: o.Size = None,
    options: o.ModelOptions = None,
    compile_: o.Compile = True,
) -> "Iterable[Row]":
    """Time whole networks: a training step without the optimizer, and generation token by token."""
    from algebranets.lab.bench import models

    check_each("--model", model, models.BENCHMARKS)
    sizes = models.Sizes(batch, size, read_settings(options or []))
    return models.measure(run, algebra or models.ALGEBRAS, model, sizes, compile_)


@add_command(app, "Forward and backward, {dtype}: the other library's time over ours")
def peers(run: "Run", op: o.PeerOps = None, width: o.Width = None, batch: o.Rows = None) -> "Iterable[Row]":
    """Time layers of other libraries and ours of the same width, forward and backward.

    Each library gets its input in its own form.
    """
    from algebranets.lab.bench import peers

    check_each("--op", op, peers.OPS)
    if absent := peers.missing():
        say(f"left out, because they cannot be imported: {', '.join(absent)}")
    return peers.measure(run, tuple(op or peers.OPS), width, batch)


@add_command(app, "Forward and backward, {dtype}: the dense product's time over skipping zeros")
def zeros(run: "Run", width: o.Widths = None, batch: o.Rows = 512) -> "Iterable[Row]":
    """Time products with and without their structural zeros.

    The threshold above which layers skip zeros was chosen from these times.
    """
    from algebranets.lab.bench import zeros

    return zeros.measure(run, width or (256, 512, 1024), batch or 512)


@add_command(app, "Forward and backward, {dtype}: torch's time over our kernels'", dtype="bfloat16", on_gpu_only=True)
def attention(
    run: "Run", algebra: o.Algebras = None, window: o.Windows = None, batch: o.NumSequences = 8
) -> "Iterable[Row]":
    """Time Transformer-XL's attention on a GPU: our kernels, torch's attention with a mask, and FlexAttention."""
    from algebranets.lab.bench import attention

    return attention.measure(run, algebra or attention.ALGEBRAS, window or attention.WINDOWS, batch)


@app.command("error")
def error(
    algebra: o.Algebras = None,
    width: o.Widths = None,
    batch: o.NumRows = 512,
    device: o.Device = "cpu",
    save: o.Save = None,
) -> None:
    """Measure rounding errors of the lowerings in each precision: ||y - exact|| / ||exact||, with exact in float64."""
    from algebranets.lab.bench import error

    make_run(device, "float32", 1, False)  # checks the device
    print_errors(collect(error.measure(device, algebra or error.ALGEBRAS, width, batch=batch), save), save)


@app.command("figure")
def figure(files: o.Files, out: o.Out, op: o.RowOps = None) -> None:
    """Draw the speed-ups in files that --save wrote."""
    from algebranets.files import write
    from algebranets.lab import bench
    from algebranets.lab.bench import figure
    from algebranets.lab.drawing import svg

    rows = [row for path in files for row in bench.load(path) if not op or row.op in op]
    write(out, svg.standalone(figure.draw(rows)))
    say(f"{len(rows)} row{'' if len(rows) == 1 else 's'} drawn in {out}")
