"""Magnitude pruning of whole tuples (Section 4.2). Products with zero tuples can be skipped.

>>> import algebranets as an
>>> from algebranets.pruning import Pruner
>>> model = an.models.create("cifar_resnet", algebra="M2R", num_blocks=1)
>>> pruner = Pruner(model, target=0.9, steps=1000)
>>> for _ in range(1000):  # call it after each optimizer step
...     pruner.step()
>>> round(pruner.sparsity, 2)
0.9
>>> pruner.finish()  # plain weights again, with zeros

`algebranets.sparse` then makes a copy of the model that stores and multiplies only nonzero tuples.
"""

from algebranets.pruning.criteria import CRITERIA
from algebranets.pruning.pruner import SCOPES, UNITS, Pruner
from algebranets.pruning.schedule import SCHEDULES, Schedule
from algebranets.pruning.weights import Weight, prunable, weights

__all__ = ["CRITERIA", "SCHEDULES", "SCOPES", "UNITS", "Pruner", "Schedule", "Weight", "prunable", "weights"]
