"""The options of the benchmark commands, each defined once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from algebranets import algebra as algebras
from algebranets.lab.cli import completion

#: The largest number of rows or features, and the largest size of images and texts. No device has memory for more, and
#: torch can still count the bytes.
MAX_SIZE, MAX_LENGTH = 2**20, 2**16
#: The lowerings that can be timed: those of `algebranets.product.Lowering`, which is slow to import, without the
#: reference, which benchmarks time as the loop.
LOWERINGS = ("auto", "blocks", "parts", "bilinear", "kernels")

#: What weights can be quantized to: `algebranets.nn.quantization.KINDS`, which is slow to import too.
WEIGHTS = ("int8",)


def _check_algebras(names: list[str] | None) -> list[str] | None:
    for name in names or ():
        algebras.get(name)
    return names


Algebras = Annotated[
    list[str] | None,
    typer.Option(
        "--algebra",
        callback=_check_algebras,
        help="Only this algebra; can be repeated.",
        autocompletion=completion.algebras,
    ),
]
Widths = Annotated[
    list[int] | None,
    typer.Option("--width", min=1, max=MAX_SIZE, help="Features of a layer, in real numbers; can be repeated."),
]
Width = Annotated[int | None, typer.Option(min=1, max=MAX_SIZE, help="Features of linear layers, in real numbers.")]
Rows = Annotated[
    int | None,
    typer.Option(
        "--batch", min=1, max=MAX_SIZE, help="Rows of linear layers; 1/64 as many images, 1/32 as many sequences."
    ),
]
Batches = Annotated[
    list[int] | None, typer.Option("--batch", min=1, max=MAX_SIZE, help="Number of rows; can be repeated.")
]
NumRows = Annotated[int, typer.Option("--batch", min=1, max=MAX_SIZE, help="Number of rows.")]
NumSequences = Annotated[int, typer.Option("--batch", min=1, max=MAX_SIZE, help="Number of sequences.")]
NumImages = Annotated[int | None, typer.Option("--batch", min=1, max=MAX_SIZE, help="Number of images.")]
NumInputs = Annotated[int | None, typer.Option("--batch", min=1, max=MAX_SIZE, help="Number of images or texts.")]
NumLayers = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MAX_SIZE,
        help="Layers of the chain; by default 4, or on a GPU at least 8 that fill its cache four times.",
    ),
]
Weights = Annotated[
    str | None, typer.Option(help="Quantize our weights: int8. By default they are stored in the precision of the run.")
]
Sparsities = Annotated[
    list[float] | None,
    typer.Option("--sparsity", min=0, max=0.999, help="Share of tuples that are zero; can be repeated."),
]
KeepDense = Annotated[
    bool, typer.Option("--keep-dense", help="Keep the dense weights too; many rows are multiplied by these.")
]
ImageSize = Annotated[
    int, typer.Option(min=32, max=MAX_LENGTH, help="Height and width of the network's input, in pixels.")
]
Size = Annotated[
    int | None,
    typer.Option(min=1, max=MAX_LENGTH, help="Height and width of images, or length of texts and prompts."),
]
Windows = Annotated[
    list[int] | None,
    typer.Option("--window", min=1, max=MAX_LENGTH, help="Length of the segment and of the memory; can be repeated."),
]
LayerOps = Annotated[list[str] | None, typer.Option("--op", help="Only linear, conv2d or gru; can be repeated.")]
PeerOps = Annotated[list[str] | None, typer.Option("--op", help="Only linear, conv2d or conv3d; can be repeated.")]
RowOps = Annotated[list[str] | None, typer.Option("--op", help="Only rows of this op; can be repeated.")]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", help="Only this model; can be repeated. An unknown name lists all models."),
]
ModelOptions = Annotated[
    list[str] | None, typer.Option("--set", help="An option of the models, such as num_layers=2; can be repeated.")
]
Compile = Annotated[bool, typer.Option("--compile/--no-compile", help="Compile both sides with torch.compile.")]
OneLowering = Annotated[
    str, typer.Option("--lowering", help=f"How our layers compute the product: {', '.join(LOWERINGS)}.")
]
Lowerings = Annotated[
    list[str] | None,
    typer.Option("--lowering", help=f"How our layers compute the product: {', '.join(LOWERINGS)}; can be repeated."),
]
Files = Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, help="Files of rows that --save wrote.")]
Out = Annotated[Path, typer.Option(help="The SVG file to write.")]

# Options of all speed benchmarks --------------------------------------------------------------------------------------

Device = Annotated[str, typer.Option(help="cpu or cuda.")]
#: Half precision means autocast, with parameters in float32.
Autocast = Annotated[str, typer.Option(help="float32, float64, or bfloat16 or float16 with autocast.")]
#: Parameters are stored in this precision too.
Stored = Annotated[str, typer.Option(help="float32, float64, bfloat16 or float16; parameters are stored in it too.")]
Rounds = Annotated[int, typer.Option(min=1, max=MAX_SIZE, help="Number of times that each layer is timed.")]
Capture = Annotated[
    bool,
    typer.Option(
        help="On a GPU, replay both sides as CUDA graphs. Without them, launches dominate the times of small sizes."
    ),
]
Save = Annotated[Path | None, typer.Option(help="Write the rows to this file, as JSON lines.")]
