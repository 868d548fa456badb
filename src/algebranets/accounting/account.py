"""`account`, which runs a model once and adds up the cost of its layers."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from algebranets.accounting.formulas import Work, work
from algebranets.nn.mode import evaluating


@dataclass(frozen=True)
class Row:
    """The cost of one layer, or the sum over several.

    Args:
        name: The layer's path in the model.
        kind: The name of the layer's class.
        algebra: The name of the layer's algebra.
        parameters: The number of parameters, in real numbers. A parameter of several layers is counted in the first.
        statistics: The number of running statistics and other floating-point buffers, in real numbers.
        nonzero: The number of parameters that are not zero.
        multiplies: The number of real multiply-adds.
        multiplies_left: The number of multiply-adds that remain if products with zero tuples are skipped.
        values_loaded: The numbers loaded for the multiply-adds if each product loads its two tuples, as in the paper's
            Table 1.
        bytes: The number of bytes of parameters that are read.
        activations: The number of real numbers in the output.

    >>> Row("fc", "Linear", "H", multiplies=16, values_loaded=8).intensity
    2.0
    """

    name: str
    kind: str
    algebra: str
    parameters: int = 0
    statistics: int = 0
    nonzero: int = 0
    multiplies: int = 0
    multiplies_left: int = 0
    values_loaded: int = 0
    bytes: int = 0
    activations: int = 0

    @property
    def intensity(self) -> float:
        """Multiplies per value loaded, as the paper's Table 1 counts them."""
        return self.multiplies / self.values_loaded if self.values_loaded else 0.0


#: The work of one call, or None if no formula is known, and the number of real numbers in its output.
Call = tuple[Work | None, int]

_SUMMED = [field.name for field in fields(Row) if field.type == "int"]


@dataclass(frozen=True)
class Account(Row):
    """The cost of a model: the sums over its layers, and the layers themselves.

    Args:
        name: The name of the model's class.
        kind: The names of its layers' classes.
        algebra: The names of the algebras of layers that multiply.
        parameters: The number of parameters, in real numbers.
        statistics: The number of running statistics and other floating-point buffers, in real numbers.
        nonzero: The number of parameters that are not zero.
        multiplies: The number of real multiply-adds.
        multiplies_left: The number of multiply-adds that remain if products with zero tuples are skipped.
        values_loaded: The numbers loaded for the multiply-adds if each product loads its two tuples, as in the paper's
            Table 1.
        bytes: The number of bytes of parameters that are read.
        activations: The number of real numbers in the layers' outputs.
        rows: The costs of the layers.
        unknown: Modules with matrices that have no formula, or that the model did not call, such as a layer whose
            ``forward`` is called directly. Their multiply-adds are missing in the sums.

    >>> import algebranets as an
    >>> cost = an.account(an.models.create("gru_lm", algebra="H", hidden_size=64))
    >>> [stage.name for stage in cost.stages()]
    ['embedding', 'gru', 'readouts', 'head']
    """

    rows: tuple[Row, ...] = ()
    unknown: tuple[str, ...] = ()

    def stages(self, depth: int = 1) -> list[Row]:
        """Return the rows, summed by the first parts of their names.

        Args:
            depth: The number of parts of a name to keep. With 1, "stage1.0.conv1" is added to "stage1".
        """
        groups: dict[str, list[Row]] = defaultdict(list)
        for row in self.rows:
            groups[".".join(row.name.split(".")[:depth])].append(row)
        return [_total(name, rows) for name, rows in groups.items()]

    def to_dict(self) -> dict[str, Any]:
        """Return the account as plain data for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        text = (
            f"{self.parameters:,} parameters, {self.multiplies:,} multiply-adds, {self.bytes:,} bytes of weights read"
        )
        return text + (f" (not counted: {', '.join(self.unknown)})" if self.unknown else "")


def account(model: nn.Module, *inputs: Any, **named: Any) -> Account:
    """Return the cost of one call ``model(*inputs, **named)``.

    The model runs once, in evaluation mode and without gradients, on the device of its parameters. On the meta device
    this takes no memory and little time, and every number counts as nonzero.

    Args:
        model: The model or layer. Layers with a formula that are called are counted (see `work`). Other modules that
            have matrices are named in ``unknown``.
        inputs: The arguments of the call, by default those from ``model.example_inputs()``.
        named: The arguments of the call that are given by name.

    >>> import torch, algebranets as an
    >>> layer = an.nn.Linear(512, 512, bias=False, algebra=an.M2R)
    >>> cost = account(layer, torch.randn(1, 512))
    >>> cost.parameters * 4 == cost.multiplies * 2 == 512 * 512, cost.intensity
    (True, 1.0)
    """
    if not inputs and not named:
        if not hasattr(model, "example_inputs"):
            raise ValueError(f"{type(model).__name__} has no example_inputs(): pass inputs, as in account(model, x).")
        inputs = model.example_inputs()  # type: ignore[operator]
    rows: dict[str, Row] = {}
    unknown = []
    calls = _record(model, inputs, named)
    seen: set[int] = set()
    for name, module in model.named_modules():
        if ".parametrizations" in f".{name}":
            continue
        own = _own(module)
        known = [call for call in calls[name] if call[0] is not None]
        has_matrices = any(p.dim() > 1 for p, _ in own.values())  # vectors only scale or shift
        if has_matrices and (len(known) < len(calls[name]) or not _is_counted(name, calls)):
            unknown.append(name or type(module).__name__)
        if own or known:
            rows[name] = _row(name, module, own, calls[name], seen)
    total = _total(type(model).__name__, list(rows.values()))
    return Account(**vars(total), rows=tuple(rows.values()), unknown=tuple(unknown))


def _is_counted(name: str, calls: dict[str, list[Call]]) -> bool:
    """Whether a formula counted a call of this module, or of one that contains it and may use its weights itself."""
    parts = name.split(".") if name else []
    return any(work is not None for n in range(len(parts) + 1) for work, _ in calls[".".join(parts[:n])])


def _record(model: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> dict[str, list[Call]]:
    """Run the model and return the calls of each module by its name."""
    calls: dict[str, list[Call]] = defaultdict(list)
    handles = []

    def watch(name: str, module: nn.Module) -> None:
        signature = inspect.signature(module.forward)

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            size = next((t.numel() for t in _tensors(output)), 0)
            calls[name].append((work(module, bound.args, output), size))

        handles.append(module.register_forward_hook(hook, with_kwargs=True))

    for name, module in model.named_modules():
        watch(name, module)
    try:
        with evaluating(model), torch.no_grad():
            model(*inputs, **named)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _row(name: str, module: nn.Module, own: dict[str, tuple[Tensor, Tensor]], calls: list[Call], seen: set[int]) -> Row:
    new = [pair for pair in own.values() if id(pair[0]) not in seen]
    seen.update(id(p) for p, _ in new)
    stored = sum(p.numel() * p.element_size() for p, _ in own.values())
    size = next((p.element_size() for p, _ in own.values()), 0)
    done = [work or Work() for work, _ in calls]
    products = [p for w in done for p in w.products]
    others = sum(w.others for w in done)
    algebra = getattr(module, "algebra", None)
    return Row(
        name,
        type(module).__name__,
        "R" if algebra is None else algebra.name,
        parameters=sum(p.numel() for p, _ in new),
        statistics=sum(b.numel() for b in module.buffers(recurse=False) if b.is_floating_point()),
        nonzero=sum(_nonzero(value[None]) for _, value in new),
        multiplies=others + sum(p.tuples[0].numel() * p.times * p.algebra.stored.multiplies for p in products),
        multiplies_left=others + sum(_nonzero(p.tuples) * p.times * p.algebra.stored.multiplies for p in products),
        values_loaded=2 * others + sum(p.tuples[0].numel() * p.times * p.algebra.values_loaded for p in products),
        bytes=sum(stored if w.read is None else w.read * size for w in done),
        activations=sum(numbers for work, numbers in calls if work is not None),
    )


def _own(module: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
    """The module's own parameters by name: each as it is stored, and as it is used, with masks applied."""
    own: dict[str, tuple[Tensor, Tensor]] = {}
    for name, parameter in module.named_parameters(recurse=False):
        masked = getattr(module, name.removesuffix("_orig"), parameter)  # the name in torch.nn.utils.prune
        own[name] = (parameter, masked)
    for name, originals in getattr(module, "parametrizations", {}).items():
        for key, parameter in originals.named_parameters(recurse=False):
            own[f"{name}.{key}"] = (parameter, getattr(module, name))
    return own


def _total(name: str, rows: list[Row]) -> Row:
    algebras = list(dict.fromkeys(row.algebra for row in rows if row.multiplies))
    kinds = list(dict.fromkeys(row.kind for row in rows))
    sums = {field: sum(getattr(row, field) for row in rows) for field in _SUMMED}
    return Row(name, ", ".join(kinds), ", ".join(algebras), **sums)


def _nonzero(tuples: Tensor) -> int:
    """The number of nonzero tuples, with components on the first axis. On the meta device, all are counted."""
    return tuples[0].numel() if tuples.is_meta else int(tuples.count_nonzero(0).count_nonzero())


def _tensors(result: Any) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, tuple | list):
        for part in result:
            yield from _tensors(part)
