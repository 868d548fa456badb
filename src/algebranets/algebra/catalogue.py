"""The paper's algebras, and `get` to find an algebra by its name."""

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

#: More names of algebras. `get` ignores case, and "-", "_" and spaces between words.
ALIASES: MappingProxyType[str, Algebra] = MappingProxyType(
    {
        name: algebra
        for algebra, *names in (
            (R, "real", "reals", "real numbers"),
            (C, "complex", "complex numbers"),
            (H, "quaternion", "quaternions"),
            (SPLIT_QUATERNIONS, "split-quaternion", "split-quaternions"),
            (BIQUATERNIONS, "biquaternion", "biquaternions"),
            (constructors.cayley_dickson(3), "octonion", "octonions"),
            (constructors.cayley_dickson(4), "sedenion", "sedenions"),
            (DUAL, "dual", "dual number", "dual numbers"),
            (CROSS, "cross", "cross product"),
            (constructors.clifford(1, 0), "split-complex", "split-complex numbers", "hyperbolic", "hyperbolic numbers"),
            (tensor(C, C, name="bicomplex"), "bicomplex", "bicomplex numbers"),
        )
        for name in names
    }
)

#: The constructors that `get` knows by name, with the smallest and the largest number of arguments of each.
_BY_NUMBERS: dict[str, tuple[Callable[..., Algebra], int, int]] = {
    "matrix": (matrix, 1, 1),
    "diagonal": (diagonal, 1, 1),
    "clifford": (constructors.clifford, 1, 3),
    "Cl": (constructors.clifford, 2, 3),  # Cl(n) is Cl(n,0) for some authors and Cl(0,n) for others
    "cayley_dickson": (constructors.cayley_dickson, 1, 1),
    "cyclic": (constructors.cyclic, 1, 1),
}


def _normalized(name: str) -> str:
    """Return a name in lower case, without "-", "_" and spaces between letters and digits."""
    return re.sub(r"(?<=[^\W_])[-_\s]+(?=[^\W_])", "", name.strip()).lower()


_BY_NAME = {
    **{_normalized(algebra.name): algebra for algebra in (*CATALOGUE.values(), *ALIASES.values())},
    **{_normalized(name): algebra for name, algebra in ALIASES.items()},
}
_CONSTRUCTORS = {_normalized(name): name for name in _BY_NUMBERS}

#: The algebras that `get` has made from names such as "clifford(2,0)". torch.compile can look them up, but cannot make
#: them.
_MADE: dict[str, Algebra] = {}


def get(spec: Algebra | str | Path) -> Algebra:
    """Find an algebra by its name.

    Args:
        spec: An `Algebra`, which is returned as it is, or one of

            - a name of the catalogue, such as "H", "M2R" or "DUAL";
            - a common name, such as "quaternions", "complex" or "octonion" (see `ALIASES`);
            - "M<n><name>" or "M<n>(<name>)" for n x n matrices over one of these, such as "M5R" or "M2(H)";
            - a constructor with its numbers, such as "diagonal(3)", "clifford(3,0)", "Cl(3,0)" or "cl30";
            - sums and tensor products of these, such as "C+M2R" and "H*H";
            - the path of a table file that ends in .toml, .json or .txt.

            Case does not matter in names, nor do "-", "_" and spaces between words.

            A compiled function can always use names of the catalogue and common names. It can use the name of an
            algebra that has to be made, such as "clifford(3,0)", if `get` has found the same name before.

    >>> get("M2R") is M2R, get("M5R").dim, get("M2(H)").dim, get("clifford(3,0)").dim
    (True, 25, 16, 8)
    >>> get("quaternions").name, get("Octonion").name, get("cl20").name, get("C+H*H").dim
    ('H', 'cayley_dickson(3)', 'clifford(2,0,0)', 18)
    """
    if isinstance(spec, Algebra):
        return spec
    text = str(spec)
    if text in CATALOGUE:
        return CATALOGUE[text]
    if isinstance(spec, Path) or re.search(r"\.(toml|json|txt)$|[/\\]", text):
        return Algebra.load(text)
    found = _BY_NAME.get(_normalized(text)) or _MADE.get(text)
    if found is None:
        found = _MADE[text] = _constructed(text)
    return found


def _constructed(text: str) -> Algebra:
    """Return the algebra that a name with numbers describes, or raise an error that says what a name must be."""
    name = _normalized(text)
    for sign, combine in (("+", constructors.direct_sum), ("*", tensor)):
        first, found, rest = text.rpartition(sign)
        if found and first.strip() and rest.strip():
            return combine(get(first), get(rest))
    if match := re.fullmatch(r"m([1-9]\d?)(?:\((.+)\)|(.+))", name):
        over = _BY_NAME.get(match[2] or match[3])
        if over is not None:
            return matrix(int(match[1]), over=over)
    if match := re.fullmatch(r"cl(\d)(\d)(\d?)", name):
        return constructors.clifford(*(int(digit) for digit in match.groups() if digit))
    match = re.fullmatch(r"([^()]+)\(([\d\s,]*)\)", text.strip())
    if match and (name := _CONSTRUCTORS.get(_normalized(match[1]), "")):
        numbers = [int(number) for number in re.findall(r"\d+", match[2])]
        constructor, least, most = _BY_NUMBERS[name]
        if not least <= len(numbers) <= most:
            allowed = f"{least} to {most} numbers" if most > 1 else "one number"
            raise ValueError(f"{text!r}: {name} takes {allowed}; got {len(numbers)}.")
        return constructor(*numbers)
    names = [*CATALOGUE, *(f"{name}({','.join('nmk'[:least])})" for name, (_, least, _) in _BY_NUMBERS.items())]
    hint = checks.did_you_mean(text.upper(), CATALOGUE) or checks.did_you_mean(text.lower(), [*names, *ALIASES])
    raise ValueError(
        f"unknown algebra {text!r}.{hint} It must be one of {', '.join(names)}, M<n><name> as in M2H, a common name "
        "such as quaternions, a sum or product of these such as C+M2R or H*H, or a table file that ends in .toml, "
        ".json or .txt."
    )
