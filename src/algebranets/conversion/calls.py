"""Finds which layers a model calls, which of them come first, and which one makes its output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from algebranets.conversion.running import tensors_in
from algebranets.nn.mode import evaluating


@dataclass
class Calls:
    """The calls of a model's layers in one run.

    Args:
        count: How many times each layer was called.
        first: The layers whose input no other layer computed. They read the model's input, or numbers that do not
            depend on it, such as positions.
        last: The layer whose output reaches the model's output without another layer in between. If there are several
            such layers, the one that was called last. None if no layer was called.
        read: The layers whose parameters were read by an operation, inside or outside of a call of the layer.
    """

    count: dict[str, int] = field(default_factory=dict)
    first: set[str] = field(default_factory=set)
    last: str | None = None
    read: set[str] = field(default_factory=set)


def watch_calls(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], layers: Mapping[str, bool]
) -> Calls:
    """Run a model once, in evaluation mode and without gradients, and return the calls of its layers.

    Args:
        model: The model.
        args, kwargs: The arguments of the call.
        layers: The names of the layers to watch, and whether each of them computes new features. A norm does not: its
            output counts as computed by the layer before it.

    >>> model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 2))
    >>> calls = watch_calls(model, (torch.ones(1, 3),), {}, dict.fromkeys("023", True))
    >>> calls.count, calls.first, calls.last
    ({'0': 1, '2': 1, '3': 1}, {'0'}, '3')
    """
    owners = {id(p): name for name in layers for p in model.get_submodule(name).parameters()}
    calls, origins, when = Calls(), _Origins(owners), dict[str, int]()
    handles = []

    def watch(name: str, module: nn.Module, computes: bool) -> None:
        def before(_: nn.Module, args: Any, kwargs: Any) -> None:
            calls.count[name] = calls.count.get(name, 0) + 1
            when[name] = len(when) if name not in when else max(when.values()) + 1
            if computes and not origins.of((args, kwargs)):
                calls.first.add(name)

        def after(_: nn.Module, __: Any, output: Any) -> None:
            if computes:
                origins.mark(output, frozenset({name}))

        handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(module.register_forward_hook(after))

    for name, computes in layers.items():
        watch(name, model.get_submodule(name), computes)
    try:
        with evaluating(model), torch.no_grad(), origins:
            output = model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    calls.read = origins.read
    computing = [name for name in when if layers[name]]
    direct = origins.of(output) or computing
    calls.last = max(direct, key=lambda name: when[name], default=None)
    return calls


class _Origins(TorchDispatchMode):
    """Tracks which layers computed each tensor. It tracks storages, which views and in-place operations share."""

    def __init__(self, owners: Mapping[int, str]) -> None:
        super().__init__()
        self.read: set[str] = set()
        self._owners = owners
        self._known: dict[StorageWeakRef, frozenset[str]] = {}

    def of(self, value: Any) -> frozenset[str]:
        """The layers that computed the tensors in a value."""
        found = (self._known.get(StorageWeakRef(t.untyped_storage())) for t in tensors_in(value) if _has_storage(t))
        return frozenset().union(*(names for names in found if names))

    def mark(self, value: Any, names: frozenset[str]) -> None:
        """Record that these layers computed the tensors in a value."""
        for tensor in tensors_in(value):
            if _has_storage(tensor):
                self._known[StorageWeakRef(tensor.untyped_storage())] = names

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if not func._schema.name.startswith(("aten::detach", "aten::alias")):
            self.read.update(self._owners[id(t)] for t in tensors_in((args, kwargs)) if id(t) in self._owners)
        names = self.of((args, kwargs))
        if names:
            self.mark(output, names)
            self.mark([value for value, is_changed in zip(args, _changed(func), strict=False) if is_changed], names)
        return output


def _changed(func: Any) -> Iterator[bool]:
    for argument in func._schema.arguments:
        yield argument.alias_info is not None and argument.alias_info.is_write


def _has_storage(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided


@contextmanager
def counting(modules: Iterable[nn.Module]) -> Iterator[dict[int, int]]:
    """Count the calls of modules. Yield the counts, by the ids of the modules.

    Args:
        modules: The modules to count.
    """
    count: dict[int, int] = {}
    handles = []
    for module in modules:
        count[id(module)] = 0

        def called(module: nn.Module, _: Any) -> None:
            count[id(module)] += 1

        handles.append(module.register_forward_pre_hook(called))
    try:
        yield count
    finally:
        for handle in handles:
            handle.remove()
