"""The product through blocks: each copy of a block is one more row (or image) for one ordinary real product.

For M_n(R) a layer IS torch's own with an n times smaller matrix on n times as many rows, and because activations are
stored copy by copy, folding them is a view. For other algebras rho(w) is laid out from the compact weight first.
"""

from algebranets.product.blocks.conv import conv
from algebranets.product.blocks.linear import linear
from algebranets.product.blocks.recurrent import recurrent

__all__ = ["conv", "linear", "recurrent"]
