"""All generated regions of the README and the pages, by name."""

from __future__ import annotations

from sitegen import conversions, speed, torch_nn, training
from sitegen.regions import Make

REGIONS: dict[str, Make] = {**training.REGIONS, **speed.REGIONS, **conversions.REGIONS, **torch_nn.REGIONS}
