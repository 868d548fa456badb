"""The tables of speed, from the rows in ``benchmarks/``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from algebranets.algebra import Algebra, get
from algebranets.lab.bench import Row, load
from algebranets.lab.report.parts import markdown_table
from algebranets.product import nearest_multiple
from algebranets.product.thresholds import GPU
from sitegen.regions import Make

FOLDER = Path(__file__).resolve().parent.parent.parent / "benchmarks"
ALGEBRAS = ("C", "H", "M2R", "M4R", "M2C")


class Line(NamedTuple):
    """A row of a table: its text, and the file, op and shape of its measurements."""

    text: str
    file: str
    op: str
    shape: str


LINEAR = [Line(f"linear, width {n}", "linear-h200", "linear", f"8192 x {n}") for n in (1024, 4096, 8192)]
DECODE = [
    Line(f"decode, width {n}, {rows} row{'s' * (rows > 1)}", "decode-h200", "decode", f"{rows} x {n}")
    for n, rows in ((4096, 1), (8192, 1), (16384, 1), (8192, 4), (8192, 32))
]
CONV = [
    Line(f"conv2d 3x3, {c} channels", "conv2d-h200", "conv2d", f"128 x {c} x {size}^2")
    for c, size in ((64, 32), (128, 16), (256, 16), (512, 8))
]
MODELS = [
    Line("ResNet-50, 256 images of 224 x 224", "models-h200", "resnet50", "256 x 224^2"),
    Line("MobileNet-v1, 256 images of 224 x 224", "models-h200", "mobilenet_v1", "256 x 224^2"),
    Line("the CIFAR ResNet, 500 images of 24 x 24", "models-h200", "cifar_resnet", "500 x 24^2"),
    Line("Transformer-XL, width 512, 16 texts of 1536", "models-h200", "transformer_xl", "16 x 1536, 24 layers"),
    Line("GRU of width 2048, 512 steps of 16 texts", "models-h200", "gru_lm's GRU", "512 x 16 x 2048"),
    Line("generation, Transformer-XL of width 4096", "models-h200", "generation", "1 x 4096, 12 layers"),
]
README = [
    Line("linear layer, width 4096, 8192 rows, forward and backward", *LINEAR[1][1:]),
    Line("linear layers of width 8192, one row, forward", *DECODE[1][1:]),
    Line("conv2d 3x3, 256 channels, forward and backward", *CONV[2][1:]),
    Line("GRU, 512 steps, forward and backward", *MODELS[4][1:]),
    Line("training step of ResNet-50", *MODELS[0][1:]),
    Line("training step of Transformer-XL, width 512", *MODELS[3][1:]),
    Line("generating text, Transformer-XL of width 4096", *MODELS[5][1:]),
]


#: The rows of the table of layers on a CPU: text, op, shape with ``{}`` for the width, and width.
CPU = [
    ("linear, width 1024, 512 rows", "linear", "512 x {}", 1024),
    *(
        (f"conv2d 3x3, {c} channels", "conv2d", f"8 x {{}} x {size}^2", c)
        for c, size in ((64, 32), (128, 16), (256, 16), (512, 8))
    ),
    ("GRU, width 1024, 16 steps", "gru", "16 x 16 x {}", 1024),
]


@cache
def _rows(file: str) -> list[Row]:
    return load(FOLDER / f"{file}.jsonl")


def _find(line: Line, algebra: str) -> Row | None:
    """The measurement of an algebra in a line, or None if there is none."""
    found = [row for row in _rows(line.file) if (row.op, row.shape, row.algebra) == (line.op, line.shape, algebra)]
    return found[-1] if found else None


def _missing(line: Line) -> ValueError:
    return ValueError(f"benchmarks/{line.file}.jsonl must have rows of {line.op} {line.shape}; it has none.")


def _speedups(line: Line, algebras: Sequence[str]) -> list[str]:
    rows = [_find(line, algebra) for algebra in algebras]
    if not any(rows):
        raise _missing(line)
    return [f"{row.speedup:.2f}" if row else "" for row in rows]


def compare(lines: Sequence[Line], algebras: Sequence[str]) -> str:
    """A table of torch.nn's time over ours: one row for each line, one column for each algebra."""
    return markdown_table(["", *algebras], [[line.text, *_speedups(line, algebras)] for line in lines])


def layers() -> str:
    """Linear layers, decoding and convolutions on an H200, with the largest possible speed-ups."""
    algebras = [get(name) for name in ALGEBRAS]
    shares = [f"1/{algebra.dim}" for algebra in algebras]
    limits = [[f"{_multiplies_saved(algebra):.3g}" for algebra in algebras], [str(algebra.dim) for algebra in algebras]]
    lines = [["parameters", *shares], *([line.text, *_speedups(line, ALGEBRAS)] for line in LINEAR)]
    lines += [["*limit of linear, by multiplies*", *limits[0]], *([x.text, *_speedups(x, ALGEBRAS)] for x in DECODE)]
    lines += [["*limit of decode, by bytes*", *limits[1]], *([line.text, *_speedups(line, ALGEBRAS)] for line in CONV)]
    return markdown_table(["", *ALGEBRAS], lines)


def _multiplies_saved(algebra: Algebra) -> float:
    """The multiplies of a real layer over those of ours, as `auto` computes a large linear layer in bf16."""
    uses_bilinear = algebra.bilinear.half_growth <= GPU.max_growth_half
    return algebra.dim**2 / (algebra.bilinear.rank if uses_bilinear else algebra.multiplies_by_blocks)


def models() -> str:
    """Training steps and generation of networks on an H200."""
    cells = []
    for line in MODELS:
        rows = [row for row in _rows(line.file) if (row.op, row.shape) == (line.op, line.shape)]
        if not rows:
            raise _missing(line)
        for row in rows:
            middle_half = f"{row.spread[0]:.2f}-{row.spread[1]:.2f}"
            cells.append([line.text, row.algebra, f"{row.speedup:.2f}", middle_half, *_per_second(row)])
    headings = ["", "over", "speed-up", "middle half", "torch.nn, a second", "ours, a second"]
    return markdown_table(headings, cells, prose=(0, 1))


def _per_second(row: Row) -> list[str]:
    if row.per_second is None:
        return ["", ""]
    return [f"{row.per_second / row.speedup:,.0f}", f"{row.per_second:,.0f}"]


LIBRARIES = {
    "complextorch": "complextorch",
    "cliffordlayers": "cliffordlayers",
    "speechbrain": "SpeechBrain",
    "clifra": "clifra",
}
#: The titles of the operations in the table of other libraries.
PEER_OPS = {
    "linear": "linear, width 4096, 8192 rows",
    "conv2d": "conv2d 3x3, 256 channels, 128 images of 16 x 16",
    "conv3d": "conv3d 3x3x3, 256 channels, 128 volumes of 8 x 8 x 8",
}


def _times_of_peers(op: str, algebra: str, libraries: Sequence[str]) -> list[str]:
    found = {row.against.split()[0]: row for row in _rows("peers-h200") if (row.op, row.algebra) == (op, algebra)}
    return [f"{found[name].speedup:.2f}" if name in found else "" for name in libraries]


def peers() -> str:
    """Layers of other libraries on an H200."""
    rows = _rows("peers-h200")
    libraries = [name for name in LIBRARIES if any(row.against.split()[0] == name for row in rows)]
    cells = []
    for op, title in PEER_OPS.items():
        for n, algebra in enumerate(dict.fromkeys(row.algebra for row in rows if row.op == op)):
            cells.append(["" if n else title, algebra, *_times_of_peers(op, algebra, libraries)])
    return markdown_table(["", "over", *(LIBRARIES[name] for name in libraries)], cells, prose=(0, 1))


def readme_peers() -> str:
    """Linear layers of other libraries on an H200: one row for each library, one column for each algebra."""
    algebras = ("C", "H", "M2R")
    libraries = [name for name in LIBRARIES if name != "clifra"]  # it is measured over other algebras
    times = [_times_of_peers("linear", algebra, libraries) for algebra in algebras]
    names = [LIBRARIES[name] for name in libraries]
    return markdown_table(["", *algebras], [[name, *row] for name, *row in zip(names, *times, strict=True)])


def depthwise() -> str:
    """The depthwise convolutions of MobileNet-v1 on an H200."""
    shapes = dict.fromkeys(row.shape for row in _rows("depthwise-h200"))
    lines = [Line(_depthwise_words(shape), "depthwise-h200", "depthwise", shape) for shape in shapes]
    return compare(lines, ("R", "C", "H", "M2R"))


def _depthwise_words(shape: str) -> str:
    size, _, stride = shape.partition(" / ")
    _, channels, side = size.split(" x ")
    side = side.removesuffix("^2")
    return f"{channels} channels, {side} x {side}" + (f", stride {stride}" if stride else "")


def sparse(file: str, widths: Sequence[int]) -> str:
    """Tuple-sparse layers: the time of the dense layer, of the real layer and of CSR over ours."""
    algebras = ("M2R", "H")
    cells = []
    for width in widths:
        for rows in (1, 8, 64):
            for zeros in (70, 80, 90, 95):
                line = Line(
                    f"{width}, {rows} row{'s' * (rows > 1)}, {zeros} %", file, "sparse", f"{rows} x {width}, {zeros} %"
                )
                cells.append([line.text, *(text for algebra in algebras for text in _sparse_cells(line, algebra))])
    kinds = ("dense", "real", "CSR")
    return markdown_table(["width, rows, zeros", *(f"{name}: {kind}" for name in algebras for kind in kinds)], cells)


def _sparse_cells(line: Line, algebra: str) -> list[str]:
    row = _find(line, algebra)
    if row is None:
        raise ValueError(f"benchmarks/{line.file}.jsonl must have a row of {line.shape} over {algebra}; it has none.")
    return [
        f"{value:.2f}" for value in (row.speedup_over_dense, row.speedup, row.speedup_over_csr) if value is not None
    ]


def cpu() -> str:
    """Layers on two ARM cores. The widths of M3R and CROSS are the nearest multiples of their dimensions."""
    algebras = tuple(dict.fromkeys(row.algebra for row in _rows("layers-cpu")))
    return markdown_table(["", *algebras], [_cpu_cells(*line, algebras) for line in CPU])


def _cpu_cells(
    text: str, op: str, shape: str, width: int, algebras: Sequence[str], file: str = "layers-cpu"
) -> list[str]:
    """A row of a table of layers on a CPU. Its shape has ``{}`` for the width."""
    speedups = []
    for name in algebras:
        line = Line(text, file, op, shape.format(nearest_multiple(width, get(name).dim)))
        row = _find(line, name)
        if row is None:
            raise _missing(line)
        speedups.append(f"{row.speedup:.2f}")
    return [text, *speedups]


def parts() -> str:
    """Algebras that consist of matrix algebras, on an H200 and on a CPU."""
    algebras = tuple(dict.fromkeys(row.algebra for row in _rows("parts-h200")))
    lines = [Line(line.text, "parts-h200", *line[2:]) for line in LINEAR[1:]]
    lines += [
        Line(f"decode, width 8192, {n} row{'s' * (n > 1)}", "parts-h200", "decode", f"{n} x 8192") for n in (1, 8, 32)
    ]
    lines += [Line(line.text, "parts-h200", *line[2:]) for line in CONV]
    cells = [["consists of", *(str(get(name).structure) for name in algebras)]]
    cells += [[line.text, *_speedups(line, algebras)] for line in lines]
    cells += [_cpu_cells(f"CPU: {text}", op, shape, width, algebras, "parts-cpu") for text, op, shape, width in CPU]
    return markdown_table(["", *algebras], cells)


def int8() -> str:
    """Decoding with int8 weights on an H200."""
    rows = _rows("int8-h200")
    cells = [
        [
            f"{row.algebra}, width {row.shape.split(' x ')[1]}, one row",
            f"{row.speedup:.2f}",
            f"{row.speedup_over_dense:.2f}",
        ]
        for row in rows
    ]
    return markdown_table(["", "torch.nn in bf16", "our layer in bf16"], cells)


def errors() -> str:
    """The rounding error of bilinear algorithms over that of blocks, on an H200 at width 1024 (M3R: 1008)."""
    rows = [json.loads(line) for line in (FOLDER / "error-h200.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["shape"] in ("512 x 1024", "512 x 1008")]
    growth = {(row["algebra"], row["dtype"]): row["errors"]["bilinear"] / row["errors"]["blocks"] for row in rows}
    algebras = dict.fromkeys(name for name, _ in growth)
    dtypes = ("bfloat16", "float16", "float32")
    return markdown_table(
        ["", *algebras], [[dtype, *(f"{growth[name, dtype]:.2f}" for name in algebras)] for dtype in dtypes]
    )


REGIONS: dict[str, Make] = {
    "readme-speed": partial(compare, README, ("C", "H", "M2R", "M4R")),
    "readme-peers": readme_peers,
    "speed-layers": layers,
    "speed-models": models,
    "speed-peers": peers,
    "speed-parts": parts,
    "speed-int8": int8,
    "speed-depthwise": depthwise,
    "speed-sparse": partial(sparse, "sparse-h200", (4096, 8192)),
    "speed-sparse-cpu": partial(sparse, "sparse-cpu", (4096,)),
    "speed-cpu": cpu,
    "speed-errors": errors,
}
