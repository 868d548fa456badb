"""Neural networks over algebras: torch.nn's layers with tuples instead of numbers.

>>> import torch, algebranets as an
>>> nn = an.over("M2R")  # was: from torch import nn
>>> layer = nn.Linear(512, 512)  # a quarter of the parameters, half of the multiplies
>>> layer(torch.randn(8, 512)).shape
torch.Size([8, 512])
"""

from algebranets import algebra, models, nn, product
from algebranets.accounting import account
from algebranets.algebra import CROSS, DUAL, M2C, M2R, M3R, M4R, Algebra, C, H, R, diagonal
from algebranets.conversion import convert, convert_, export, fold, to_real
from algebranets.nn.namespace import over
from algebranets.nn.sparse import sparse
from algebranets.product import cat, chunk, from_tuples, join_heads, split, split_heads, tuples

__version__ = "0.1.0"

__all__ = [
    "CROSS",
    "DUAL",
    "M2C",
    "M2R",
    "M3R",
    "M4R",
    "Algebra",
    "C",
    "H",
    "R",
    "account",
    "algebra",
    "cat",
    "chunk",
    "convert",
    "convert_",
    "diagonal",
    "export",
    "fold",
    "from_tuples",
    "join_heads",
    "models",
    "nn",
    "over",
    "product",
    "sparse",
    "split",
    "split_heads",
    "to_real",
    "tuples",
]
