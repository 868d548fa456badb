"""`Conversion`, the report on a converted model: what became what, at what cost, and what was kept."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from algebranets.algebra import Algebra
from algebranets.conversion.flow.channels import Torn
from algebranets.conversion.layers import Spec
from algebranets.conversion.parts import Parts, in_words

_WIDTH = 80


@dataclass(frozen=True)
class Row:
    """One layer in the report: its form and its cost before and after the conversion.

    Args:
        name: The layer's name in the model.
        before: The name of its class before the conversion.
        after: The name of its class after the conversion.
        algebra: The algebra of the new layer, or None if the layer stays real.
        reason: Why the layer stays real, or "".
        parameters: The number of parameters before and after, in real numbers. A parameter that several layers share
            is counted in the first of them.
        multiplies: The number of multiply-adds before and after, for the example inputs. None if they were not
            counted.
        in_parts: The parts of the input's channel axis, or None if the axis is planar or the layer stays real.
        out_parts: The parts of the output's channel axis, or None if the axis is planar or the layer stays real.
        lift: The mode of the Lift in front of the layer, or None.
        head: "tuple_norm" if the layer is followed by a TupleNorm, else "real".
    """

    name: str
    before: str
    after: str
    algebra: Algebra | None
    reason: str
    parameters: tuple[int, int]
    multiplies: tuple[int, int] | None
    in_parts: Parts | None = None
    out_parts: Parts | None = None
    lift: str | None = None
    head: str = "real"


@dataclass(frozen=True)
class Conversion:
    """The report on a conversion, which the model carries as ``model.conversion``. Print it to see a table.

    Args:
        model: The name of the model's class.
        inputs: The shapes of the example inputs, in words, or "" if the model was converted by a plan.
        rows: What happened to each layer of a type that can be converted.
        parameters: The number of parameters of the whole model before and after.
        multiplies: The number of multiply-adds of the whole model before and after, for the example inputs. Products
            that no layer computes, such as attention in a model's own code, are not counted. None if the model was
            converted by a plan, without a run.
        torn: The operations of the model's code that take tuples apart. The model computes with them, but the layers
            after them do not see the tuples that the layers before them made.
        uncounted: The modules with matrices of their own, such as a table of positions, whose multiply-adds are not
            counted.

    >>> import torch
    >>> from algebranets.conversion import convert
    >>> model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3)))
    >>> report = convert(model, "H").conversion
    >>> report.parameters, [row.name for row in report.converted]
    ((216, 168), ['1'])
    """

    model: str
    inputs: str
    rows: tuple[Row, ...]
    parameters: tuple[int, int]
    multiplies: tuple[int, int] | None
    torn: tuple[Torn, ...] = ()
    uncounted: tuple[str, ...] = ()

    @property
    def converted(self) -> tuple[Row, ...]:
        """The rows of the layers that are now over an algebra."""
        return tuple(row for row in self.rows if row.algebra is not None)

    @property
    def kept(self) -> tuple[Row, ...]:
        """The rows of the layers that stay real."""
        return tuple(row for row in self.rows if row.algebra is None)

    def plan(self) -> dict[str, dict[str, Any]]:
        """Return what `apply_plan` needs to convert a fresh copy of the real model in the same way, as data for JSON.

        >>> import torch
        >>> from algebranets.conversion import convert
        >>> model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3)))
        >>> sorted(convert(model, "H").conversion.plan()["1"])
        ['algebra', 'head', 'in_parts', 'lift', 'out_parts']
        """
        return {row.name: to_data(_spec(row)) for row in self.converted}

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def to_data(spec: Spec) -> dict[str, Any]:
    """Return what a layer becomes as data for JSON.

    Args:
        spec: What the layer becomes.
    """
    parts = {name: None if value is None else list(value) for name, value in _parts(spec)}
    return {"algebra": spec.algebra.to_dict(), **parts, "lift": spec.lift, "head": spec.head}


def from_data(name: str, data: Any) -> Spec:
    """Return what a layer becomes, from data of `to_data`.

    Args:
        name: The name of the layer, for errors.
        data: The data.
    """
    if not isinstance(data, dict) or set(data) != {"algebra", "in_parts", "out_parts", "lift", "head"}:
        raise ValueError(f"the plan for {name!r:.80} is {data!r:.80}: use a plan from model.conversion.plan().")
    parts = {}
    for key in ("in_parts", "out_parts"):
        sizes = data[key]
        if sizes is not None and not (isinstance(sizes, list | tuple) and all(type(size) is int for size in sizes)):
            raise ValueError(f"{key} in the plan for {name!r:.80} must be whole numbers or None; got {sizes!r:.80}.")
        parts[key] = None if sizes is None else tuple(sizes)
    return Spec(Algebra.from_table(data["algebra"]), **parts, lift=data["lift"], head=data["head"])


def _spec(row: Row) -> Spec:
    assert row.algebra is not None
    return Spec(row.algebra, row.in_parts, row.out_parts, row.lift, row.head)


def _parts(part: Spec) -> Iterator[tuple[str, Parts | None]]:
    yield "in_parts", part.in_parts
    yield "out_parts", part.out_parts


# The table ------------------------------------------------------------------------------------------------------------


def _lines(report: Conversion) -> Iterator[str]:
    algebras = ", ".join(dict.fromkeys(row.algebra.name for row in report.converted if row.algebra is not None))
    counted = f"counted for the input {report.inputs}" if report.inputs else "converted by a plan"
    yield from _wrapped(f"{report.model} over {algebras}, {counted}")
    yield ""
    yield from _columns("layer", "type", "over", "parameters", "multiply-adds")
    yield "-" * _WIDTH
    for rows in _grouped(report.converted):
        first = rows[0]
        over = first.algebra.name if first.algebra else ""
        yield from _columns(_group_name(rows), first.before, over, *map(_change, _sums(rows)))
        if notes := _notes(rows):
            yield from _wrapped(notes, "    ")
    others = _others(report)
    if any(others[0]):
        yield from _columns("all other modules", "", "R", *map(_change, others))
    yield "-" * _WIDTH
    yield from _columns("total", "", "", _change(report.parameters), _change(report.multiplies))
    if report.kept:
        yield ""
        yield f"Kept real ({len(report.kept)}):"
    for rows in _grouped(report.kept):
        numbers = f"{_short(sum(row.parameters[1] for row in rows))} parameters"
        yield from _wrapped(f"{_group_name(rows)} ({rows[0].before}, {numbers}): {rows[0].reason}", "  ")
    if report.torn:
        yield ""
        yield from _wrapped(
            f"Torn ({len(report.torn)}): these operations take tuples apart. The model runs, but the next layers do "
            "not see the tuples of the layers before."
        )
    for text in _torn(report.torn):
        yield from _wrapped(text, "  ")
    if report.uncounted:
        yield ""
        shown = ", ".join(report.uncounted[:8]) + (" and others" if len(report.uncounted) > 8 else "")
        yield from _wrapped(
            "These modules have matrices of their own, which stay real, and whose multiply-adds are not counted: "
            f"{shown}."
        )


def _torn(torn: Iterable[Torn]) -> Iterator[str]:
    """The operations that take tuples apart, each line of code once for all modules that run it."""
    found: dict[Any, list[Torn]] = {}
    for one in torn:
        found.setdefault((one.place.op, one.place.file, one.place.line, one.reason), []).append(one)
    for same in found.values():
        more = f" Also in {len(same) - 1} other modules." if len(same) > 1 else ""
        yield f"{same[0]}.{more}"


_NAME, _TYPE, _OVER, _FIGURES = 24, 12, 6, 17


def _columns(name: str, kind: str, over: str, parameters: str, multiplies: str) -> Iterator[str]:
    """One row of the table, or two if the name or the type is too long for its column."""
    fits = len(kind) <= _TYPE and len(over) <= _OVER
    made = f"{kind:<{_TYPE}} {over:<{_OVER}}" if fits else f"{kind} {over}"
    if len(name) > _NAME or not fits:
        yield name
        name = ""
    left = f"{name:<{_NAME}} {made}" if fits else f"{made:>{_NAME + 1 + _TYPE + 1 + _OVER}}"
    yield f"{left} {parameters:>{_FIGURES}} {multiplies:>{_FIGURES}}".rstrip()


def _notes(rows: list[Row]) -> str:
    words = []
    for name in ("in_parts", "out_parts"):
        found = {parts for row in rows if (parts := getattr(row, name))}
        if len(found) == 1:
            words.append(f"{name}={in_words(found.pop())}")
        elif found:
            words.append(f"{name} of different sizes")
    words += [f"{rows[0].lift} Lift in front"] if rows[0].lift else []
    words += ["TupleNorm after it"] if rows[0].head == "tuple_norm" else []
    return ", ".join(words)


def _others(report: Conversion) -> tuple[tuple[int, int], tuple[int, int] | None]:
    """The parameters and multiply-adds of the model that are in no converted layer."""
    parameters, multiplies = _sums(report.converted)
    rest = _minus(report.parameters, parameters)
    assert rest is not None
    return rest, _minus(report.multiplies, multiplies)


def _minus(total: tuple[int, int] | None, part: tuple[int, int] | None) -> tuple[int, int] | None:
    return None if total is None or part is None else (total[0] - part[0], total[1] - part[1])


#: With more groups than this, layers of different sizes are put into one group.
_MAX_GROUPS = 32


def _grouped(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows that differ in nothing but numbers in their names. If these are many groups, their sizes may differ too."""
    by_size: dict[Any, list[Row]] = {}
    by_name: dict[Any, list[Row]] = {}
    for row in rows:
        same = (re.sub(r"[0-9]+", "0", row.name), row.before, row.algebra, row.reason, row.lift, row.head)
        sizes = (row.parameters, row.multiplies, row.in_parts, row.out_parts) if row.algebra is not None else ()
        by_size.setdefault((same, sizes), []).append(row)
        by_name.setdefault(same, []).append(row)
    return list((by_size if len(by_size) <= _MAX_GROUPS else by_name).values())


def _group_name(rows: list[Row]) -> str:
    """The name of a group, with all numbers that occur at a place.

    >>> def row(name): return Row(name, "Conv2d", "Conv2d", None, "", (0, 0), (0, 0))
    >>> _group_name([row(f"layer{n}.0.conv1") for n in (1, 2, 4)])
    'layer[1-2,4].0.conv1 (x3)'
    """
    if len(rows) == 1:
        return rows[0].name or "(the model)"
    pieces = zip(*(re.split(r"([0-9]+)", row.name) for row in rows), strict=True)
    return f"{''.join(_common(list(dict.fromkeys(piece))) for piece in pieces)} (x{len(rows)})"


def _common(pieces: list[str]) -> str:
    if len(pieces) == 1:
        return pieces[0]
    numbers = sorted(map(int, pieces))
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return f"[{','.join(f'{run[0]}-{run[-1]}' if len(run) > 1 else str(run[0]) for run in runs)}]"


def _sums(rows: Iterable[Row]) -> tuple[tuple[int, int], tuple[int, int] | None]:
    """The parameters and multiply-adds of several layers."""
    parameters, multiplies = [row.parameters for row in rows], [row.multiplies for row in rows]
    counted = [pair for pair in multiplies if pair is not None]
    return _sum(parameters), _sum(counted) if len(counted) == len(multiplies) else None


def _sum(pairs: list[tuple[int, int]]) -> tuple[int, int]:
    return sum(before for before, _ in pairs), sum(after for _, after in pairs)


def _change(pair: tuple[int, int] | None) -> str:
    if pair is None:
        return "-"
    before, after = pair
    return _short(before) if before == after else f"{_short(before)} -> {_short(after)}"


def _short(number: int) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g}{unit}" if number < 999.5 * size else f"{number / size:.0f}{unit}"
    return str(number)


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
