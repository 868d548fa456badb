"""Algebras as values: multiplication tables, the paper's catalogue, and constructors for more."""

from algebranets.algebra.blocks import Block
from algebranets.algebra.catalogue import (
    ALIASES,
    BIQUATERNIONS,
    CATALOGUE,
    CROSS,
    DUAL,
    M2C,
    M2R,
    M3R,
    M4R,
    SPLIT_QUATERNIONS,
    C,
    H,
    R,
    get,
)
from algebranets.algebra.change import Change
from algebranets.algebra.constructors import (
    cayley_dickson,
    change_basis,
    clifford,
    cyclic,
    diagonal,
    direct_sum,
    group_algebra,
    matrix,
    opposite,
    tensor,
)
from algebranets.algebra.isomorphism import isomorphic
from algebranets.algebra.parts import Part
from algebranets.algebra.structure import Structure
from algebranets.algebra.value import Algebra

__all__ = [
    "ALIASES",
    "BIQUATERNIONS",
    "CATALOGUE",
    "CROSS",
    "DUAL",
    "M2C",
    "M2R",
    "M3R",
    "M4R",
    "SPLIT_QUATERNIONS",
    "Algebra",
    "Block",
    "C",
    "Change",
    "H",
    "Part",
    "R",
    "Structure",
    "cayley_dickson",
    "change_basis",
    "clifford",
    "cyclic",
    "diagonal",
    "direct_sum",
    "get",
    "group_algebra",
    "isomorphic",
    "matrix",
    "opposite",
    "tensor",
]
