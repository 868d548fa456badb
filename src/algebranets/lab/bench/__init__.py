"""Benchmarks: the time of torch's layer over ours, timed in turn in one run.

Ratios are medians. Layers are warmed up, and a layer that disagrees with its reference is not timed. Every benchmark is
a module whose ``measure(run, ...)`` yields rows:

- `layers`: linear, conv2d and GRU layers, forward and backward;
- `decode`: chains of linear layers on few rows, forward;
- `sparse`: chains of tuple-sparse linear layers, forward;
- `depthwise`: MobileNet-v1's depthwise convolutions, forward and backward;
- `models`: training steps of whole networks, and generation;
- `peers`: layers of other libraries;
- `zeros` and `attention`: what the choices in `product.blocks` and `nn.relative` rest on;
- `error`: rounding errors instead of times, what the choice of a lowering rests on.

`figure` draws rows. `case` makes one comparison, `chain` chains of layers, `timing` takes times, `rows` keeps them.
"""

from algebranets.lab.bench.rows import Row, load, save
from algebranets.lab.bench.timing import Run

__all__ = ["Row", "Run", "load", "save"]
