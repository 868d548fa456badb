"""Runs a model and follows the channels of its layers through the operations between them."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from algebranets.conversion.flow.channels import Channels, Meeting, Place, Reading, Torn

#: Operations that only move numbers. Labels are moved in the same way.
_MOVES = frozenset((
    "_reshape_alias", "_reshape_copy", "_unsafe_view", "alias", "cat", "channel_shuffle", "chunk",
    "constant_pad_nd", "detach", "diagonal", "expand", "flip", "gather", "im2col", "index", "index_select",
    "lift_fresh", "narrow", "native_channel_shuffle", "permute", "pixel_shuffle", "pixel_unshuffle", "repeat",
    "repeat_interleave", "reshape", "roll", "rot90", "select", "slice", "split", "split_with_sizes", "squeeze",
    "stack", "t", "tensor_split", "tile", "transpose", "unbind", "unfold", "unsafe_split", "unsqueeze", "view",
))  # fmt: skip
_RESHAPES = frozenset(("view", "_unsafe_view", "reshape", "_reshape_alias", "_reshape_copy"))

#: Operations that combine tensors number by number, in addition to those that torch marks as such. Names of operations
#: in place are without their final underscore.
_POINTWISE = frozenset((
    "_prelu_kernel", "_to_copy", "copy", "hardshrink", "hardswish", "leaky_relu", "log_sigmoid_forward", "masked_fill",
    "native_dropout", "rrelu", "rrelu_with_noise", "rrelu_with_noise_functional", "softplus", "softshrink",
))  # fmt: skip

#: Reductions along the axes in the argument ``dim``.
_REDUCTIONS = frozenset((
    "amax", "amin", "linalg_vector_norm", "logsumexp", "max", "mean", "median", "min", "norm", "prod", "std", "sum",
    "var", "var_mean",
))  # fmt: skip

_MATRIX_PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}  # the position of the first matrix

#: Words in the names of other operations that leave each channel in its place.
_KEEPING = ("norm", "softmax", "pool", "upsample", "dropout", "pad", "cum", "sort", "tri", "fill", "zero", "bernoulli")

#: Layers that stay real, and new tensors. Their results may belong to any tuple.
_REAL_LAYERS = ("convolution", "embedding", "_embedding_bag", "mv", "addmv", "rnn", "lstm", "gru", "new_")


class Follower(TorchDispatchMode):
    """Follows channels while it is active, and records in ``channels`` what is done with them.

    A *label* of a tensor holds the number of a channel for each number of the tensor. Its axes have size 1 where all
    channels are the same.

    Args:
        model: The model. It must run inside ``with follower:``.
        layers: The layers to follow, by name, with the dim of the algebra of each.
    """

    def __init__(self, model: nn.Module, layers: dict[str, int]) -> None:
        super().__init__()
        self.channels = Channels()
        self.bypassed: dict[str, str] = {}
        self._labels: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._layers = layers
        self._modules: list[str] = []  # the names of the modules that are running
        self._running: list[str] = []  # those of them that are followed: what they do inside is theirs
        self._owners = {id(p): name for name in layers for p in model.get_submodule(name).parameters()}
        self._handles = [handle for name, module in model.named_modules() for handle in self._watch(name, module)]

    def __exit__(self, *args: Any) -> None:
        for handle in self._handles:
            handle.remove()
        super().__exit__(*args)

    def _watch(self, name: str, module: nn.Module) -> list[Any]:
        """Add hooks that keep track of the running modules, and that read and set the labels of layers."""

        def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._modules.append(name)
            if name in self._layers:
                if not self._running:
                    self._read(name, module, [*args, *kwargs.values()])
                self._running.append(name)

        def leave(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            self._modules.pop()
            if name in self._layers:
                self._running.pop()
                if not self._running:
                    self._write(name, module, [*args, *kwargs.values()], output)

        return [
            module.register_forward_pre_hook(enter, with_kwargs=True),
            module.register_forward_hook(leave, with_kwargs=True),
        ]

    def _read(self, name: str, module: nn.Module, inputs: list[Any]) -> None:
        axis, place = channel_axis(module), Place(type(module).__name__, name, *_caller())
        for x in _floats(inputs):
            label = self._labels.get(x)
            if label is None or label.shape[axis] == 1:  # channels are on another axis, which the layer does not mix
                continue
            others = [dim for dim in range(label.dim()) if dim != axis % label.dim()]
            sequence = label.amax(others, keepdim=True) if others else label
            self._meet(place, sequence, label)
            self._sum(place, sequence.flatten(), name)

    def _write(self, name: str, module: nn.Module, inputs: list[Any], output: Any) -> None:
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            return  # nothing is multiplied, so the vectors may be tuples in any order
        axis, outputs = channel_axis(module), list(_floats([output]))
        label = next((self._labels[x] for x in _floats(inputs) if x in self._labels), None)
        for y in outputs[:1] if isinstance(module, nn.MultiheadAttention) else outputs:
            if label is not None and (isinstance(module, nn.GroupNorm) or label.shape[axis] == 1):
                self._set(y, label)  # the channels stay the same
                continue
            channels = self.channels.new(name, self._layers[name], y.shape[axis], can_have_parts=y is outputs[0])
            shape = [1] * y.dim()
            shape[axis] = -1
            self._set(y, channels.double().view(shape))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if not self._running:
            for x in tree_iter((args, kwargs)):
                if id(x) in self._owners and _name(func) not in ("detach", "alias"):
                    self.bypassed.setdefault(self._owners[id(x)], self._modules[-1] if self._modules else "")
            if any(x in self._labels for x in _floats([args, kwargs])):
                self._follow(func, args, kwargs, out)
        return out

    def _follow(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Set the labels of the results of one operation."""
        name = _name(func)
        results = list(_floats([out]))
        if not results:
            return
        place = Place(name.strip("_"), self._modules[-1] if self._modules else "", *_caller())
        if name in _MOVES:
            self._move(place, func, args, kwargs, list(tree_iter(out)))
        elif _is_pointwise(func):
            self._combine(place, list(_floats([args, kwargs])), results)
        elif name in _MATRIX_PRODUCTS:
            begin = _MATRIX_PRODUCTS[name]
            self._multiply(place, args[begin], args[begin + 1], results[0])
        elif "scaled_dot_product" in name:
            self._attend(place, args[0], args[1], args[2], results[0])
        elif name == "glu":
            self._gate(place, args[0], _arguments(func, args, kwargs)["dim"], results[0])
        elif name in _REDUCTIONS:
            self._reduce(place, args[0], _arguments(func, args, kwargs).get("dim"), results)
        elif not name.startswith(_REAL_LAYERS) and not name.endswith("_like"):
            self._pass(place, _arguments(func, args, kwargs).get("dim"), args, results)

    def _move(self, place: Place, func: Any, args: Any, kwargs: Any, results: list[Any]) -> None:
        def label(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            if not _is_float(x):
                return x.cpu()
            known = self._labels.get(x)
            return torch.zeros(()).double().expand(x.shape) if known is None else known.expand(x.shape)

        if _name(func) in _RESHAPES:
            moved: Any = label(args[0]).reshape(results[0].shape)
        elif _name(func) == "constant_pad_nd":
            moved = func(label(args[0]), args[1])  # padded with zeros, which may belong to any tuple
        elif "channel_shuffle" in _name(func):
            groups = label(args[0]).unflatten(1, (args[1], -1))
            self._cut(place, _compact(groups))
            moved = groups.transpose(1, 2).flatten(1, 2)
        else:
            moved = func(
                *tree_map(label, args), **{key: tree_map(label, kwargs[key]) for key in kwargs if key != "out"}
            )
        for y, number in zip(results, tree_iter(moved), strict=True):
            if isinstance(y, Tensor) and _is_float(y):
                self._set(y, number)
                self._cut(place, self._labels.get(y))

    def _cut(self, place: Place, label: Tensor | None) -> None:
        """Record cuts at the ends of runs of neighboring channels on the last axis, the last two axes, and so on."""
        for dim in reversed(range(0 if label is None else label.dim())):
            assert label is not None
            rows = label.flatten(dim)
            if label.shape[dim] == 1 or rows.shape[-1] == 1:
                continue
            rows = rows.reshape(-1, rows.shape[-1]).unique(dim=0).sort(-1).values
            steps = rows.diff(dim=-1)
            if (steps != 1).all():
                continue  # no neighboring channels
            first = torch.cat([rows[:, :1], rows[:, 1:].where(steps > 1, 0)], -1)
            last = torch.cat([rows[:, -1:], rows[:, :-1].where(steps > 1, 0)], -1)
            edges = torch.cat([first, (last + 1).where(last > 0, 0)])
            self.channels.cut(place, label.dim() - dim, edges.long().unique())

    def _combine(self, place: Place, inputs: list[Tensor], results: list[Tensor]) -> None:
        total: Tensor | None = None
        for x in inputs:
            if (label := self._labels.get(x)) is not None:
                if total is None:
                    total = label
                else:
                    self._meet(place, total, label)
                    total = torch.where(total > 0, total, label)
        y = results[0]
        if total is not None and place.op == "copy" and y._base is not None:
            self.channels.lose(Torn(place, "writes into a part of another tensor, so its tuples are not followed"))
        if total is not None and total.numel() and total.dim() <= y.dim():
            self._set(y, total)

    def _multiply(self, place: Place, x: Tensor, w: Tensor, y: Tensor) -> None:
        """A matrix product. Its result has the channels of a factor that are not summed over."""
        left, right = self._labels.get(x), self._labels.get(w)
        if left is not None and right is not None and left.shape[-1] > 1 and right.shape[-2] > 1:
            self._meet(place, left.amax(-2), right.amax(-1))
            self._sum_rows(place, left.amax(-2))
            self._sum_rows(place, right.amax(-1))
        elif right is not None and (right.shape[-2] == 1 or right.shape[-1] > 1):
            total = self._add_up(place, right, -2)
            self._sum_rows(place, total.squeeze(-2))  # all components of a tuple must be in one matrix of the batch
            self._set(y, total)
        elif left is not None and (left.shape[-1] == 1 or left.shape[-2] > 1):
            self._set(y, self._add_up(place, left, -1))

    def _add_up(self, place: Place, label: Tensor, dim: int) -> Tensor:
        """The label of a sum along an axis. All numbers that are added up meet the first of them."""
        first = label.narrow(dim, 0, 1)
        self._meet(place, first, label)
        return first

    def _attend(self, place: Place, q: Tensor, k: Tensor, v: Tensor, y: Tensor) -> None:
        """Attention. The queries, keys and values of a head must be whole tuples."""
        query, key, value = (_per_head(self._labels.get(x), x, q) for x in (q, k, v))
        for label in (query, key, value):
            if label is not None:
                self._sum_rows(place, label.amax(-2))
        if query is not None and key is not None:
            self._meet(place, query.amax(-2), key.amax(-2))
        if value is not None:
            self._set(y, value.amax(-2, keepdim=True))

    def _sum_rows(self, place: Place, label: Tensor) -> None:
        """Record that the channels along the last axis are multiplied by the same numbers, or summed."""
        for row in label.reshape(-1, label.shape[-1]).unique(dim=0):
            self._sum(place, row, None)

    def _sum(self, place: Place, row: Tensor, layer: str | None) -> None:
        channels = row.long()
        if (channels > 0).any():
            dim = self.channels.dim(int(channels.max())) if layer is None else self._layers[layer]
            self.channels.readings.append(Reading(place, layer, dim, channels))

    def _gate(self, place: Place, x: Tensor, dim: int, y: Tensor) -> None:
        label = self._labels[x].expand(x.shape)
        halves = label.chunk(2, dim)
        for half in halves:
            self._cut(place, _compact(half))
        self._meet(place, *halves)
        self._set(y, halves[0])

    def _reduce(self, place: Place, x: Tensor, dims: int | list[int] | None, results: list[Tensor]) -> None:
        """A sum, mean or norm along axes. If these are all axes of channels, the result is a real number."""
        label = self._labels[x]
        reduced = [dim % x.dim() for dim in ([dims] if isinstance(dims, int) else dims or range(x.dim()))]
        rest = [dim for dim in range(x.dim()) if dim not in reduced and label.shape[dim] > 1]
        for dim in reduced:
            label = self._add_up(place, label, dim) if rest else label.amax(dim, keepdim=True)
        is_real = not rest and any(self._labels[x].shape[dim] > 1 for dim in reduced)
        for y in results:
            self._set(y, None if is_real else label if y.dim() == x.dim() else label.amax(reduced))

    def _pass(self, place: Place, dim: Any, args: Any, results: list[Tensor]) -> None:
        """Norms, softmax, pooling and the like. Axes that keep their sizes keep their channels."""
        x = next(x for x in _floats([args]) if x in self._labels)
        label, y = self._labels[x], results[0]
        kept = label.dim() == y.dim() and all(
            a == 1 or b == c for a, b, c in zip(label.shape, x.shape, y.shape, strict=True)
        )
        spatial = re.search(r"(\d)d", place.op)  # such as pooling and interpolation, which mix the last axes
        mixes = spatial is not None and any(size > 1 for size in label.shape[-int(spatial[1]) :])
        if mixes or (isinstance(dim, int) and label.shape[dim] > 1 and "softmax" not in place.op):  # cumsum, sort, ...
            self.channels.lose(Torn(place, "depends on the order of channels, so tuples are not followed through it"))
        elif kept and any(word in place.op for word in _KEEPING):
            self._set(y, label)
        else:
            self.channels.lose(Torn(place, "is not known, so tuples are not followed through it"))

    def _meet(self, place: Place, left: Tensor, right: Tensor) -> None:
        left, right = torch.broadcast_tensors(left, right)
        known = (left > 0) & (right > 0)
        pairs = _without_repeats(torch.stack([left[known], right[known]]).long())
        if not torch.equal(*pairs):
            self.channels.meetings.append(Meeting(place, *pairs))

    def _set(self, y: Tensor, label: Tensor | None) -> None:
        if label is not None and (label > 0).any():
            self._labels[y] = _compact(label.view([1] * (y.dim() - label.dim()) + list(label.shape)))
        else:
            self._labels.pop(y, None)


def channel_axis(module: nn.Module) -> int:
    """The channel axis of a layer's tensors: 1 for a group norm, else counted from the last axis.

    Args:
        module: A layer of torch.nn.
    """
    if isinstance(module, nn.GroupNorm):
        return 1
    return -1 - len(module.kernel_size) if isinstance(module, nn.modules.conv._ConvNd) else -1


def _compact(label: Tensor) -> Tensor:
    """The label with size 1 on each axis along which all known channels are the same."""
    for dim in range(label.dim()):
        if label.shape[dim] > 1:
            top = label.narrow(dim, 0, 1) if label.stride(dim) == 0 else label.amax(dim, keepdim=True)
            if label.stride(dim) == 0 or ((label == top) | (label == 0)).all():
                label = top
    return label


def _without_repeats(pairs: Tensor) -> Tensor:
    """The columns of ``pairs`` in their order, each once."""
    if not pairs.numel():
        return pairs
    _, number = (pairs[0] * (pairs.max() + 1) + pairs[1]).unique(return_inverse=True)
    position = torch.arange(len(number))
    first = torch.full_like(number, len(number)).scatter_reduce(0, number, position, "amin")
    return pairs[:, first[number] == position]


def _per_head(label: Tensor | None, x: Tensor, q: Tensor) -> Tensor | None:
    """The label of keys or values, repeated if several heads of queries share one of them."""
    if label is None or label.dim() < 3 or label.shape[-3] == 1 or x.shape[-3] == q.shape[-3]:
        return label
    return label.repeat_interleave(q.shape[-3] // x.shape[-3], dim=-3)


def _is_pointwise(func: Any) -> bool:
    """Return whether an operation combines tensors number by number.

    torch 2.11 marks ``hardtanh`` as such, but not ``hardtanh_``, so both count. Other overloads of the name do not:
    ``max`` of two tensors is pointwise, and ``max`` along an axis is not.
    """
    name = _name(func).removesuffix("_")
    twin = getattr(getattr(torch.ops.aten, name, None), func._overloadname, func)
    return name in _POINTWISE or any(torch.Tag.pointwise in overload.tags for overload in (func, twin))


def _name(func: Any) -> str:
    return str(func.overloadpacket.__name__) if hasattr(func, "overloadpacket") else str(func)


def _arguments(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    schema = func._schema.arguments
    defaults = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    return {**defaults, **dict(zip((argument.name for argument in schema), args, strict=False)), **kwargs}


def _is_float(x: Tensor) -> bool:
    return x.is_floating_point() or x.is_complex()


def _floats(values: Any) -> Any:
    return (x for x in tree_iter(values) if isinstance(x, Tensor) and _is_float(x))


def _caller() -> tuple[str, int]:
    """The file and line of the model's code that runs the current operation."""
    frame = sys._getframe(2)
    skipped = tuple(f"{Path(file).parent}{os.sep}" for file in (torch.__file__, __file__))
    while frame.f_back is not None and frame.f_code.co_filename.startswith(skipped):
        frame = frame.f_back
    return Path(frame.f_code.co_filename).name, frame.f_lineno
