"""The paper's algebras, `get` to find one by its name, and the isomorphisms that the paper states."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

from algebranets import checks
from algebranets.algebra import constructors
from algebranets.algebra.constructors import diagonal, matrix, tensor
from algebranets.algebra.value import Algebra

R = constructors.REALS

C = Algebra.parse("""
    C |  a  b
    --+-------
    a |  a  b
    b |  b -a
""")

H = Algebra.parse("""
    H |  a  b  c  d
    --+-------------
    a |  a  b  c  d
    b |  b -a  d -c
    c |  c -d -a  b
    d |  d  c -b -a
""")

M2R = matrix(2)
M3R = matrix(3)
M4R = matrix(4)
M2C = matrix(2, over=C)

DUAL = Algebra.parse("""
    DUAL |  a  b
    -----+-------
       a |  a  b
       b |  b  0
""")

CROSS = Algebra.parse("""
    CROSS |  a  b  c
    ------+----------
        a |  0  c -b
        b | -c  0  a
        c |  b -a  0
""")

#: The rows of the paper's Table 1, in its order. The diagonal algebra exists for every n; here n is 4.
CATALOGUE = MappingProxyType(
    {algebra.name: algebra for algebra in (R, C, M2R, M3R, M4R, M2C, H, diagonal(4), DUAL, CROSS)}
)

SPLIT_QUATERNIONS = Algebra.parse("""
    split-quaternions |  a  b  c  d
    ------------------+-------------
                    a |  a  b  c  d
                    b |  b -a  d -c
                    c |  c -d  a -b
                    d |  d  c  b  a
""")

#: Quaternions with complex coefficients instead of real ones.
BIQUATERNIONS = tensor(H, C, name="biquaternions")

#: 1, i, j, k of the split-quaternions as 2 x 2 real matrices: M2(R) in this basis is SPLIT_QUATERNIONS.
SPLIT_QUATERNIONS_IN_M2R = (
    (1, 0, 0, 1),
    (0, 1, -1, 0),
    (0, 1, 1, 0),
    (1, 0, 0, -1),
)

#: 1, I, i, iI, j, jI, k, kI of the biquaternions (I commutes with i, j, k) as 2 x 2 complex matrices.
BIQUATERNIONS_IN_M2C = (
    (1, 0, 0, 0, 0, 0, 1, 0),
    (0, 1, 0, 0, 0, 0, 0, 1),
    (0, 1, 0, 0, 0, 0, 0, -1),
    (-1, 0, 0, 0, 0, 0, 1, 0),
    (0, 0, 1, 0, -1, 0, 0, 0),
    (0, 0, 0, 1, 0, -1, 0, 0),
    (0, 0, 0, 1, 0, 1, 0, 0),
    (0, 0, -1, 0, -1, 0, 0, 0),
)

#: The constructors that `get` knows by name, and the largest number of arguments of each. Only the first is required.
_BY_NUMBERS: dict[str, tuple[Callable[..., Algebra], int]] = {
    "matrix": (matrix, 1),
    "diagonal": (diagonal, 1),
    "clifford": (constructors.clifford, 3),
    "cayley_dickson": (constructors.cayley_dickson, 1),
    "cyclic": (constructors.cyclic, 1),
}


def get(spec: Algebra | str | Path) -> Algebra:
    """Find an algebra by its name.

    Args:
        spec: An `Algebra`, which is returned as it is, or one of

            - a name of the catalogue, such as "H", "M2R" or "DUAL";
            - "M<n><name>" for n x n matrices over an algebra of the catalogue, such as "M5R" or "M2H";
            - a constructor with its numbers, such as "diagonal(3)" or "clifford(3,0)";
            - the path of a table file that ends in .toml, .json or .txt.

    >>> get("M2R") is M2R, get("M5R").dim, get("M2H").dim, get("clifford(3,0)").dim
    (True, 25, 16, 8)
    """
    if isinstance(spec, Algebra):
        return spec
    text = str(spec)
    if text in CATALOGUE:
        return CATALOGUE[text]
    if isinstance(spec, Path) or re.search(r"\.(toml|json|txt)$|[/\\]", text):
        return Algebra.load(text)
    match = re.fullmatch(r"M([1-9]\d?)(.+)", text)
    if match and match[2] in CATALOGUE:
        return matrix(int(match[1]), over=CATALOGUE[match[2]])
    match = re.fullmatch(r"(\w+)\(\s*([\d\s,]*?)\s*\)", text)
    if match and match[1] in _BY_NUMBERS:
        numbers = [int(number) for number in re.findall(r"\d+", match[2])]
        constructor, most = _BY_NUMBERS[match[1]]
        if not 1 <= len(numbers) <= most:
            allowed = f"1 to {most} numbers" if most > 1 else "one number"
            raise ValueError(f"{text!r}: {match[1]} takes {allowed}; got {len(numbers)}.")
        return constructor(*numbers)
    names = [*CATALOGUE, *(f"{name}(n)" for name in _BY_NUMBERS)]
    hint = checks.did_you_mean(text.upper(), CATALOGUE) or checks.did_you_mean(text, names)
    raise ValueError(
        f"unknown algebra {text!r}.{hint} It must be one of {', '.join(names)}, M<n><name> as in M2H, "
        "or a table file that ends in .toml, .json or .txt."
    )
