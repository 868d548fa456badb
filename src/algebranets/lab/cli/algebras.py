"""The commands ``algebras`` and ``algebra``."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer
from rich.table import Table

from algebranets import algebra as algebras
from algebranets.algebra import Algebra
from algebranets.algebra.value import MAX_SEARCHED_DIM
from algebranets.lab.cli import completion
from algebranets.lab.cli.terminal import console, new_table, say, show

#: The names of the algebras in the paper's Table 1.
PAPER_NAMES = {
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


def list_algebras(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Print these algebras and the matrix algebras that they consist of.",
            autocompletion=completion.algebras,
            show_default=False,
        ),
    ] = None,
) -> None:
    """List the algebras of the paper's Table 1 with its figures, computed from their multiplication tables."""
    if names:
        show(_comparison([algebras.get(name) for name in names]))
        return
    table = new_table("Algebras: Table 1 of the paper, and the blocks of left multiplication")
    table.add_column("algebra")
    table.add_column("")
    table.add_column("weight\nsize", justify="right")
    table.add_column("weight\nreuse", justify="right")
    table.add_column("multiplies :\nvalues loaded", justify="right")
    table.add_column("blocks")
    for algebra in algebras.CATALOGUE.values():
        table.add_row(
            algebra.name,
            PAPER_NAMES[algebra.name],
            str(algebra.dim),
            str(algebra.weight_reuse or "-"),
            f"{algebra.multiplies} : {algebra.values_loaded}",
            _blocks(algebra),
        )
    show(table)
    console.print("[bold]algebranets algebra NAME[/] prints one algebra, also your own from a file.", markup=True)


def _comparison(chosen: list[Algebra]) -> Table:
    """A table of algebras, their blocks, and the matrix algebras that they consist of."""
    table = new_table("Algebras: multiplies of one product, by blocks of the table and by simple parts")
    table.add_column("algebra", min_width=min(20, max(len(algebra.name) for algebra in chosen)), overflow="fold")
    table.add_column("weight\nsize", justify="right")
    table.add_column("blocks")
    table.add_column("by\nblocks", justify="right")
    table.add_column("simple parts")
    table.add_column("by\nparts", justify="right")
    for algebra in chosen:
        parts, multiplies = f"dim > {MAX_SEARCHED_DIM}: not computed", "-"
        if algebra.dim <= MAX_SEARCHED_DIM:
            structure = algebra.structure
            parts, multiplies = str(structure), str(structure.multiplies) if structure.is_semisimple else "-"
        table.add_row(
            algebra.name, str(algebra.dim), _blocks(algebra), str(algebra.multiplies_by_blocks), parts, multiplies
        )
    return table


def show_algebra(
    name: Annotated[
        str,
        typer.Argument(
            help="A name such as M2R or quaternions, a constructor such as 'Cl(3,0)', or a .toml, .json or .txt file.",
            autocompletion=completion.algebras,
        ),
    ],
) -> None:
    """Print an algebra's multiplication table, its properties, and how its products are computed."""
    algebra = algebras.get(name)
    if algebra.dim <= 16:
        console.print(algebra.table(), soft_wrap=True)
    else:
        say(f"{algebra.name}: {algebra.dim} components (the table is too large to print)")
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    for key, value in _facts(algebra):
        facts.add_row(key, value)
    console.print()
    show(facts)


def _blocks(algebra: Algebra) -> str:
    """The blocks of an algebra, such as ``2 copies of 2 x 2``, or ``4 kinds of 1 x 1`` if they differ."""
    kinds = Counter(
        (f"{block.num_copies} copies of " if block.num_copies > 1 else "") + f"{block.size} x {block.size}"
        for block in algebra.blocks
    )
    return ", ".join(f"{count} kinds of {kind}" if count > 1 else kind for kind, count in kinds.items())


def _structure(algebra: Algebra, multiplies: int) -> str:
    """The matrix algebras that an algebra consists of, and how many of its ``multiplies`` by blocks they save."""
    if algebra.dim > MAX_SEARCHED_DIM:
        return f"not computed, because there are more than {MAX_SEARCHED_DIM} components"
    structure = algebra.structure
    if not structure.is_semisimple:
        return str(structure)
    saved = f" instead of {multiplies}" if structure.multiplies < multiplies else ""
    unused = saved and algebra.change is None
    why = "; not used, because the change of basis is not orthogonal" if unused else ""
    return f"{structure}: {structure.multiplies} multiplies{saved}{why}"


def _facts(algebra: Algebra) -> list[tuple[str, str]]:
    def yes(value: bool) -> str:
        return "yes" if value else "no"

    unit = "none" if algebra.unit is None else "(" + ", ".join(map(str, algebra.unit)) + ")"
    waste = sum(block.waste * block.size**2 * block.num_copies for block in algebra.blocks)
    real = algebra.multiplies_by_blocks
    skipped = f", {round(waste)} of them by structural zeros, which large layers skip" if waste else ""
    expanded = "stored as blocks" if algebra.folded else "blocks are made from the weight in each forward"
    lowering = ("lowering blocks (auto)", f"{_blocks(algebra)}; {real} multiplies per product{skipped}; {expanded}")
    if algebra.change is not None:
        lowering = (
            "lowering parts (auto)",
            f"changes of basis to and from {algebra.stored.name}, which stores weights",
        )
    return [
        ("weight size", str(algebra.dim)),
        ("weight reuse", str(algebra.weight_reuse or "differs between components")),
        ("multiplies : values loaded", f"{algebra.multiplies} : {algebra.values_loaded}"),
        ("unit", unit),
        ("associative", yes(algebra.associative)),
        ("commutative", yes(algebra.commutative)),
        ("conjugation", yes(algebra.conjugation is not None)),
        ("stored order", " ".join(algebra.components[k] for k in algebra.order)),
        ("simple parts", _structure(algebra, real)),
        lowering,
        ("lowering reference", "the sum over the table, for tests"),
    ]
