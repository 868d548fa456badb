"""Finds the parts of channel axes from what a model does with its channels.

A *channel* is one output of one layer, and has a number. The number 0 stands for channels that may belong to any tuple:
those of the model's input, and of layers that stay real. `following` runs a model and records where its code cuts
channel axes, and which channels it combines and reads. `Channels.solve` then decides which parts each layer writes and
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from algebranets.conversion.parts import Parts


@dataclass(frozen=True)
class Place:
    """A place in a model's code.

    Args:
        op: The operation, such as "cat".
        module: The name of the module that runs it.
        file: The source file.
        line: The line in the file.

    >>> print(Place("cat", "features.0", "densenet.py", 12))
    cat in features.0 (densenet.py:12)
    """

    op: str
    module: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.op} in {self.module or 'the model'} ({self.file}:{self.line})"


@dataclass(frozen=True)
class Torn:
    """An operation that takes tuples apart.

    Args:
        place: Where it is.
        reason: What happens to the tuples.
    """

    place: Place
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


@dataclass(frozen=True)
class Output:
    """The channels that one layer writes, whose numbers are ``first``, ``first + 1``, and so on.

    Args:
        layer: The name of the layer.
        dim: The dim of its algebra.
        first: The number of the first channel.
        size: The number of channels.
        can_have_parts: Whether the layer can write them in parts. It cannot for the states of recurrent layers.
    """

    layer: str
    dim: int
    first: int
    size: int
    can_have_parts: bool


Site = tuple[str, int, int]


@dataclass(frozen=True)
class Cut:
    """A place where a part may begin, because the code cuts a channel axis before each of these channels.

    ``level`` is the number of axes into which each piece is cut further.
    """

    place: Place
    level: int
    channels: Tensor

    @property
    def site(self) -> Site:
        """The line of code and the level. All cuts at one site are made, or none."""
        return self.place.file, self.place.line, self.level


@dataclass(frozen=True)
class Meeting:
    """Two tensors that are combined number by number: ``left[i]`` with ``right[i]``."""

    place: Place
    left: Tensor
    right: Tensor

    @cached_property
    def parallel(self) -> Tensor:
        """Where both tensors go on with the next channel: there, parts must begin in both or in neither."""
        steps = (self.left.diff() == 1) & (self.right.diff() == 1)
        return steps.nonzero().flatten()


@dataclass(frozen=True)
class Reading:
    """Channels that are multiplied together, in the order of the axis: by a layer, or (layer None) in a dot product."""

    place: Place
    layer: str | None
    dim: int
    channels: Tensor


@dataclass(frozen=True)
class Solution:
    """What `Channels.solve` found: the parts of each layer's input and output, and what takes tuples apart."""

    in_parts: dict[str, Parts] = field(default_factory=dict)
    out_parts: dict[str, Parts] = field(default_factory=dict)
    torn: tuple[Torn, ...] = ()


class Channels:
    """The record of what a model does with its channels."""

    def __init__(self) -> None:
        self.outputs: list[Output] = []
        self.cuts: list[Cut] = []
        self.meetings: list[Meeting] = []
        self.readings: list[Reading] = []
        self.lost: dict[Place, Torn] = {}
        self._count = 1

    def new(self, layer: str, dim: int, size: int, can_have_parts: bool) -> Tensor:
        """Return the channels of a layer's output, which are the same in each of its calls."""
        key = (layer, size, can_have_parts)
        found = next((o for o in self.outputs if (o.layer, o.size, o.can_have_parts) == key), None)
        if found is None:
            found = Output(layer, dim, self._count, size, can_have_parts)
            self.outputs.append(found)
            self._count += size
        return torch.arange(found.first, found.first + size)

    def dim(self, channel: int) -> int:
        """The dim of the algebra of a channel's layer."""
        return next(o.dim for o in self.outputs if o.first <= channel < o.first + o.size)

    def cut(self, place: Place, level: int, channels: Tensor) -> None:
        """Record that the code cuts a channel axis before these channels, unless a layer's output begins there."""
        firsts = torch.tensor([0, self._count, *(o.first for o in self.outputs)])
        inner = channels[~torch.isin(channels, firsts)]
        if len(inner):
            self.cuts.append(Cut(place, level, inner))

    def lose(self, torn: Torn) -> None:
        """Record an operation whose result has no known channels."""
        self.lost.setdefault(torn.place, torn)

    def solve(self) -> Solution:
        """Decide where parts begin, and return the parts of all layers.

        Parts may begin where the code cuts a channel axis. The search starts with all sites of cuts, and leaves out or
        adds one site at a time if fewer operations then take tuples apart, or as many with fewer sites.
        """
        sites = sorted({cut.site for cut in self.cuts})
        chosen: set[Site] = set()
        torn = self._torn(self._segments(chosen))
        if torn and sites:
            chosen = set(sites)
            torn = self._torn(self._segments(chosen))
            improved = True
            while improved:
                improved = False
                for site in sites:
                    other = chosen ^ {site}
                    left = self._torn(self._segments(other))
                    if (len(left), len(other)) < (len(torn), len(chosen)):
                        chosen, torn, improved = other, left, True
        return self._solution(chosen, torn)

    def _starts(self, sites: set[Site]) -> Tensor:
        """For each channel, whether a part begins with it, if parts begin at the cuts of these sites."""
        starts = torch.zeros(self._count, dtype=torch.bool)
        starts[0] = True
        for output in self.outputs:
            starts[output.first] = True
        offset = torch.arange(self._count) - self._first
        is_whole = (offset % self._dims == 0) & (self._can_have_parts | (offset == 0))
        for cut in self.cuts:
            if cut.site in sites and is_whole[cut.channels].all():
                starts[cut.channels] = True
        left, right = self._parallel
        while True:  # a part that begins in one of two parallel channels begins in the other
            begins = starts[left] | starts[right]
            spread = starts.clone()
            spread[left[begins]] = True
            spread[right[begins]] = True
            spread &= is_whole
            if torch.equal(spread, starts):
                return starts
            starts = spread

    def _segments(self, sites: set[Site]) -> _Segments:
        return _Segments(self._starts(sites), self._dims)

    @cached_property
    def _dims(self) -> Tensor:
        return self._of_output(lambda output: output.dim)

    @cached_property
    def _first(self) -> Tensor:
        return self._of_output(lambda output: output.first)

    @cached_property
    def _can_have_parts(self) -> Tensor:
        return self._of_output(lambda output: output.can_have_parts).bool()

    @cached_property
    def _parallel(self) -> tuple[Tensor, Tensor]:
        none = torch.zeros(0, dtype=torch.int64)
        left = torch.cat([none, *(m.left[m.parallel] for m in self.meetings)])
        right = torch.cat([none, *(m.right[m.parallel] for m in self.meetings)])
        return left, right

    def _of_output(self, value: Callable[[Output], int]) -> Tensor:
        """For each channel, a number of the output that it belongs to."""
        return torch.cat([torch.ones(1, dtype=torch.int64), *(torch.full((o.size,), value(o)) for o in self.outputs)])

    def _torn(self, segments: _Segments) -> list[Torn]:
        """The operations that take tuples apart."""
        return [
            *(Torn(m.place, "combines components of different tuples") for m in self.meetings if not segments.fit(m)),
            *(Torn(r.place, self._reason(r)) for r in self.readings if segments.parts(r) is None),
        ]

    def _reason(self, reading: Reading) -> str:
        reader = "multiplies" if reading.layer is None else "reads"
        return f"{reader} channels that are not whole tuples"

    def _solution(self, sites: set[Site], torn: list[Torn]) -> Solution:
        starts = self._starts(sites)
        segments = _Segments(starts, self._dims)
        out_parts: dict[str, Parts] = {}
        for output in self.outputs:
            begins = starts[output.first : output.first + output.size].nonzero().flatten()
            sizes = torch.cat([begins, torch.tensor([output.size])]).diff().tolist()
            if len(sizes) > 1:
                out_parts[output.layer] = tuple(sizes)
        in_parts: dict[str, Parts] = {}
        for reading in self.readings:
            parts = segments.parts(reading) or ()
            if reading.layer is None or not parts:
                continue
            if in_parts.setdefault(reading.layer, parts) != parts:
                torn.append(Torn(reading.place, "reads channels in different orders"))
        in_parts = {layer: parts for layer, parts in in_parts.items() if len(parts) > 1}
        return Solution(in_parts, out_parts, tuple(dict.fromkeys([*torn, *self.lost.values()])))


class _Segments:
    """For each channel, its place in a tuple, if parts begin at the channels in ``starts``."""

    def __init__(self, starts: Tensor, dims: Tensor) -> None:
        number = torch.arange(len(starts))
        part = starts.cumsum(0)
        size = part.bincount()[part]
        begin = torch.where(starts, number, 0).cummax(0).values
        self.begin, self.offset, self.size, self.dims = begin, number - begin, size, dims

    def locate(self, channels: Tensor, dim: Tensor | int) -> tuple[Tensor, Tensor]:
        """The component and the tuple of each channel, in tuples of ``dim`` components."""
        per_component = (self.size[channels] // dim).clamp(min=1)
        offset = self.offset[channels]
        return offset // per_component, self.begin[channels] + offset % per_component

    def fit(self, meeting: Meeting) -> bool:
        """Whether whole tuples meet: equal components, and all of them."""
        left, right = meeting.left, meeting.right
        same = self.dims[left] == self.dims[right]  # at a border between two algebras, anything may meet
        left, right = left[same], right[same]
        (component, owner), (other, partner) = (self.locate(side, self.dims[side]) for side in (left, right))
        if not torch.equal(component, other):
            return False
        num_channels = len(self.dims)
        channels = (left * num_channels + right).unique()
        tuples = (owner * num_channels + partner).unique()
        return len(channels) == int(self.dims[tuples // num_channels].sum())

    def parts(self, reading: Reading) -> Parts | None:
        """The sizes of the parts of an axis, or None if it does not hold whole tuples."""
        channels, dim = reading.channels, reading.dim
        known = channels > 0
        component, owner = self.locate(channels, dim)
        if not known.all():  # channels of unknown origin are planar
            if len(channels) % dim:
                return None
            for begin, end in _runs(known):
                if not known[begin]:
                    if (end - begin) % dim:
                        return None
                    per_component = (end - begin) // dim
                    offset = torch.arange(end - begin)
                    component[begin:end] = offset // per_component
                    owner[begin:end] = -1 - begin - offset % per_component
        begins = ((component[1:] == 0) & (component[:-1] == dim - 1)).nonzero().flatten() + 1
        edges = [0, *begins.tolist(), len(channels)]
        sizes = []
        for begin, end in pairwise(edges):
            if (end - begin) % dim:
                return None
            planes, owners = component[begin:end].view(dim, -1), owner[begin:end].view(dim, -1)
            if not (planes == torch.arange(dim)[:, None]).all() or not (owners == owners[0]).all():
                return None
            sizes.append(end - begin)
        return tuple(sizes)


def _runs(known: Tensor) -> Iterator[tuple[int, int]]:
    """The runs of equal values in a boolean tensor, as pairs of begin and end."""
    changes = (known[1:] != known[:-1]).nonzero().flatten() + 1
    yield from pairwise([0, *changes.tolist(), len(known)])
