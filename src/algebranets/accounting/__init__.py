"""The cost of a model, layer by layer: parameters, multiply-adds, bytes, zeros.

>>> import algebranets as an
>>> real, ours = (an.account(an.models.create("cifar_resnet", algebra=name)) for name in ("R", "M2R"))  # for one image
>>> round(ours.parameters / real.parameters, 2), round(ours.multiplies / real.multiplies, 2)
(0.25, 0.52)

Multiply-adds are those of products with weights and of attention scores, as torch's own counter counts them. Norms,
activations and biases are not counted, as is usual.
"""

from algebranets.accounting.account import Account, Row, account
from algebranets.accounting.counter import register
from algebranets.accounting.formulas import Product, Work, work

register()

__all__ = ["Account", "Product", "Row", "Work", "account", "work"]
