"""Every table of the paper: its printed figures, and ours computed from the models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from algebranets import algebra as algebras
from algebranets.lab import recorded
from algebranets.lab.recorded import Counts
from algebranets.lab.report.paper.printed import (
    ALGEBRAS,
    CIFAR,
    CIFAR_COUNTED_AT,
    CIFAR_NOTES,
    CIFAR_UNSAID,
    COMPONENTS,
    CRITERIA,
    ENWIK8,
    ENWIK8_NOTES,
    IMAGENET,
    WIKITEXT,
    WIKITEXT_NOTES,
)

NOT_TRAINED = "needs training; this table computes counts only"


@dataclass(frozen=True)
class Entry:
    """One figure of the paper, as printed and as computed here.

    >>> Entry("M2R 512", "M parameters", printed="3.1", computed=3.14).agrees
    True

    Args:
        row: The row of the paper's table, such as ``"M2R 512"``.
        quantity: The quantity that is counted, such as ``"M parameters"``.
        printed: The figure as the paper prints it; empty if it prints none.
        computed: Our figure; None if we compute none.
        note: An explanation of the difference.
    """

    row: str
    quantity: str
    printed: str
    computed: float | str | None
    note: str | None = None

    @property
    def agrees(self) -> bool | None:
        """Whether our figure rounds to the printed one; None if there is nothing to compare."""
        if self.computed is None or not self.printed:
            return None
        if isinstance(self.computed, str):
            return self.computed == self.printed
        return f"{self.computed:.{self.decimals}f}" == f"{float(self.printed):.{self.decimals}f}"

    @property
    def decimals(self) -> int:
        """The number of decimals of the printed figure."""
        return len(self.printed.partition(".")[2])

    @property
    def difference(self) -> float | None:
        """Our figure minus the printed one, as a share of the printed one."""
        if self.computed is None or isinstance(self.computed, str) or not self.printed:
            return None
        return self.computed / float(self.printed) - 1


@dataclass(frozen=True)
class Table:
    """A table of the paper.

    Args:
        title: The table's number and subject.
        entries: Its figures, row by row.
        notes: Remarks on the whole table.
        heading: The heading of the column with the paper's figures.
    """

    title: str
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()
    heading: str = "printed"


#: Returns the cost of a network, given the model's name, the size of its image (None for the default) and its options.
Count = Callable[[str, int | None, dict[str, Any]], Counts]


def count(model: str, size: int | None, options: dict[str, Any]) -> Counts:
    """Count the cost of a network for one image or token, on the meta device without making weights.

    Args:
        model: The name of the model.
        size: The height and width of its image; None for the default.
        options: The options of the model.

    >>> count("gru_lm", None, {"algebra": "M2R", "hidden_size": 64})
    Counts(parameters=45728, statistics=0, multiplies=55296, operations=47104)
    """
    import torch

    from algebranets import models
    from algebranets.accounting import account
    from algebranets.lab.report.paper.operations import count_operations

    with torch.device("meta"):
        built: Any = models.create(model, **options)
        inputs = built.example_inputs(*(() if size is None else (size,)))
    cost = account(built, *inputs)
    return Counts(cost.parameters, cost.statistics, cost.multiplies, count_operations(built, *inputs))


def look_up(model: str, size: int | None, options: dict[str, Any]) -> Counts:
    """Return what `count` does, from the recorded counts if they have the network."""
    found = recorded.networks().get(recorded.network_name(model, size, options))
    return count(model, size, options) if found is None else found


def tables(count: Count = look_up) -> Iterator[Table]:
    """Every table of the paper, in the paper's order.

    Args:
        count: Returns the cost of a network: `look_up`, or `count` to count again.

    >>> next(tables()).title
    'Table 1: algebras'
    """
    yield algebra_table()
    yield imagenet_table(count)
    yield enwik8_table(count)
    yield wikitext_table(count)
    yield criteria_table()
    yield components_table()
    yield cifar_table(count)


def algebra_table() -> Table:
    """Table 1: the cost of a product of two tuples."""
    entries = []
    for name, printed in ALGEBRAS.items():
        a = algebras.get(name)
        computed = (str(a.dim), str(a.weight_reuse or "-"), f"{a.multiplies}:{a.values_loaded}")
        quantities = ("weight size", "weight reuse", "multiplies : values loaded")
        entries += [Entry(name, *cells) for cells in zip(quantities, printed, computed, strict=True)]
    notes = (
        "The paper prints N, 1 and N:2N for the diagonal algebra of any N. Here N = 4.",
        'Likely erratum: the text calls the ratio "at least 1:1 for all algebras", but in the table it is 3:4 for the '
        "dual numbers and 1:2 for the diagonal algebra.",
    )
    return Table("Table 1: algebras", tuple(entries), notes)


NAMES = {"resnet50": "ResNet-50", "mobilenet_v1": "MobileNet"}
PARITY = "the width at which the multiply-adds are close to those of the real network; widths are whole tuples"


def imagenet_table(count: Count = look_up) -> Table:
    """Figures 1 and 2: ResNet-50 and MobileNet-v1, one image of 224 x 224."""
    entries = []
    for model, rows in IMAGENET.items():
        for (name, width), (parameters, multiplies) in rows.items():
            ours = count(model, None, {"algebra": name, "width": width})
            row = f"{NAMES[model]} {name}" + ("" if width == 1 else f" x{width}")
            note = None if width == 1 else PARITY
            entries.append(Entry(row, "M parameters", parameters, ours.parameters / 1e6, note))
            entries.append(Entry(row, "M multiply-adds", multiplies, ours.multiplies / 1e6, note))
    notes = (
        "The paper's figures have no numbers. The expected counts were derived by hand from its rules: round(width * "
        "channels / N) tuples, one 1 x 1 convolution for each extra component at the input, one tuple per class.",
    )
    return Table("Figures 1 and 2: ResNet-50 and MobileNet-v1 on ImageNet", tuple(entries), notes, "expected")


def enwik8_table(count: Count = look_up) -> Table:
    """Table 2: Transformer-XL, one token with a memory of 1536 or 4608 positions."""
    entries = []
    for row, (options, printed, remarks) in ENWIK8.items():
        windows = {window: count("transformer_xl", None, {**options, "window": window}) for window in (1536, 4608)}
        figures: list[tuple[str, str, float]] = [("M parameters", printed[0], windows[1536].parameters)]
        for (window, ours), figure in zip(windows.items(), printed[1:3], strict=True):
            figures.append((f"MFLOPs, {window}", figure, _operations(ours)))
            figures.append((f"MFLOPs, {window}, all", "", ours.multiplies))
        for quantity, figure, value in figures:
            entries.append(Entry(row, quantity, figure, value / 1e6, remarks.get(quantity)))
        entries.append(Entry(row, "validation BPC", printed[3], None, NOT_TRAINED))
    return Table("Table 2: Transformer-XL on Enwik8", tuple(entries), ENWIK8_NOTES)


def wikitext_table(count: Count = look_up) -> Table:
    """Table 3: the GRU, one token."""
    entries = []
    for (name, size), printed in WIKITEXT.items():
        options = {"algebra": name, "hidden_size": size * algebras.get(name).dim}
        ours = count("gru_lm", None, options)
        figures = (
            ("M parameters", printed[0], ours.parameters / 1e6),
            ("MFLOPs", printed[1], _operations(ours) / 1e6),
            ("MFLOPs, all", "", 2 * ours.multiplies / 1e6),
        )
        for quantity, figure, value in figures:
            note = WIKITEXT_NOTES.get((name, size, quantity))
            entries.append(Entry(f"{name} {size}", quantity, figure, value, note))
        entries.append(Entry(f"{name} {size}", "BPC", printed[2], None, NOT_TRAINED))
    notes = (
        "Sizes are in tuples, as in the paper. Its MFLOPs, two per multiply-add, fit 6 h^2 (m + N) + 10 m h^2 + 512 h: "
        "half of the GRU's products count as N multiplies instead of m, and those of the last layer as one.",
    )
    return Table("Table 3: GRU on WikiText-103 characters", tuple(entries), notes)


def criteria_table() -> Table:
    """Table 4: top-1 accuracy with pruning criteria other than the Frobenius norm, over M2(R)."""
    return _accuracies("Table 4: pruning criteria against the Frobenius norm, top-1, M2(R)", CRITERIA)


def components_table() -> Table:
    """Table 5: top-1 accuracy with pruned components compared with pruned tuples."""
    return _accuracies("Table 5: pruning components against tuples, top-1", COMPONENTS)


def _accuracies(title: str, rows: dict[float, dict[str, str]]) -> Table:
    entries = (
        Entry(f"sparsity {100 * sparsity:g} %", column.replace("-", " "), figure, None, NOT_TRAINED)
        for sparsity, figures in rows.items()
        for column, figure in figures.items()
    )
    return Table(title, tuple(entries))


def cifar_table(count: Count = look_up) -> Table:
    """Table 6: the CIFAR-10 network. Parameters include moving statistics."""
    entries = []
    for (name, norm), printed in CIFAR.items():
        options = {"algebra": name, "norm": norm}
        ours, counted = (count("cifar_resnet", size, options) for size in (None, CIFAR_COUNTED_AT))
        row = f"{name} {norm}"
        flops_note = CIFAR_UNSAID
        if norm == "whitening":
            flops_note = (
                "the paper's count is far above one N x N product per tuple, the cost of whitening at inference"
            )
        elif algebras.get(name).dim > 2:
            flops_note = (
                "the channels in the text do not give it either; H has twice the count of M2R, here and in the paper"
            )
        entries += [
            Entry(row, "M parameters", printed[0], (ours.parameters + ours.statistics) / 1e6, CIFAR_UNSAID),
            Entry(row, "MFLOPs", printed[1], counted.multiplies / 1e6, flops_note),
            Entry(row, "MFLOPs, 32 x 32", "", ours.multiplies / 1e6),
            Entry(row, "top-1", printed[2], None, NOT_TRAINED),
        ]
    return Table("Table 6: CIFAR-10", tuple(entries), CIFAR_NOTES)


def _operations(counts: Counts) -> float:
    """The operations for one token, as the paper counts them."""
    assert counts.operations is not None
    return counts.operations
