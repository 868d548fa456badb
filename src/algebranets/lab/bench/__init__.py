"""Benchmarks: the time of torch's layer over ours, timed in turn in one run.

Ratios are medians. Layers are warmed up. A layer that disagrees with its reference is not timed. Every benchmark is a
module whose function ``measure`` yields rows:

- `layers`: linear, conv2d and GRU layers, forward and backward;
- `decode`: chains of linear layers on few rows, forward;
- `sparse`: chains of tuple-sparse linear layers, forward;
- `depthwise`: MobileNet-v1's depthwise convolutions, forward and backward;
- `models`: training steps of whole networks, and generation;
- `peers`: layers of other libraries;
- `zeros` and `attention`: the alternatives between which `product.blocks` and `nn.relative` choose;
- `error`: rounding errors instead of times, on which the choice of a lowering is based.

`figure` draws rows. `case` makes one comparison, `chain` helps to time chains of layers, `timing` takes times, and
`rows` saves them.
"""

from algebranets.lab.bench.rows import Row, load, save
from algebranets.lab.bench.timing import Run

__all__ = ["Row", "Run", "load", "save"]
