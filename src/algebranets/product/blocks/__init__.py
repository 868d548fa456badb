"""The lowering "blocks": each copy of a block is one more row (or image) of one ordinary real product.

For M_n(R) a layer is torch's own layer with an n times narrower matrix on n times as many rows. Activations are stored
copy by copy, so folding them is a view. For other algebras, rho(w) is first built from the compact weight.
"""

from algebranets.product.blocks.conv import conv
from algebranets.product.blocks.linear import linear
from algebranets.product.blocks.recurrent import recurrent

__all__ = ["conv", "linear", "recurrent"]
