"""The cost of a model, layer by layer: parameters, multiply-adds, bytes, zeros.

>>> import algebranets as an
>>> real, ours = (an.account(an.models.create("cifar_resnet", algebra=name)) for name in ("R", "M2R"))  # for one image
>>> round(ours.parameters / real.parameters, 2), round(ours.multiplies / real.multiplies, 2)
(0.25, 0.52)

Multiply-adds are counted for products with weights, for attention and for whitening. Other norms, activations and
biases are not counted, as in torch's own counter.
"""

from algebranets.accounting.account import Account, Row, account
from algebranets.accounting.formulas import Product, Work, work

__all__ = ["Account", "Product", "Row", "Work", "account", "work"]
