"""Algebras: how tables are read, the laws of every algebra, blocks and bilinear algorithms."""

import json
import pickle
import re
from copy import deepcopy
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from algebranets import algebra as algebras
from algebranets.algebra import (
    BIQUATERNIONS,
    CATALOGUE,
    CROSS,
    DUAL,
    M2C,
    M2R,
    M3R,
    SPLIT_QUATERNIONS,
    Algebra,
    C,
    H,
    R,
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
from conftest import ALGEBRAS, CONSTRUCTED

ROOT = Path(__file__).parent.parent

over_catalogue = pytest.mark.parametrize("algebra", CATALOGUE.values(), ids=str)
over_all = pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)

# The paper's tables, copied from its LaTeX source.
PAPER_TABLES = {
    "C": r"""$\mathbb{C}$ & $a$ & $b$\\
 \midrule
 $a$ & $a$ & $b$\\
 $b$ & $b$ & $-a$\\""",
    "M2R": r"""\begin{tabular}{c|cccc}
$M_2(\mathbb{R})$ & $a$ & $b$ & $c$ & $d$\\
 \midrule
 $a$ & $a$ & $b$ & 0 & 0\\
 $b$ & 0 & 0 & $a$ & $b$\\
 $c$ & $c$ & $d$ & 0 & 0 \\
 $d$ & 0 & 0 & $c$ & $d$
\end{tabular}""",
    "H": r"""$\mathbb{H}$& $a$ & $b$ & $c$ & $d$\\
 \midrule
 $a$ & $a$ & $b$  & $c$  & $d$\\
 $b$ & $b$ & -$a$ & $d$  & -$c$\\
 $c$ & $c$ & -$d$ & -$a$ & $b$ \\
 $d$ & $d$ & $c$  & -$b$ & -$a$""",
    "diagonal(4)": r"""$\mathbb{D}$& $a$ & $b$ & $c$ & $d$\\
 $a$ & $a$ & 0 & 0 & 0\\
 $b$ & 0 & $b$ & 0 & 0\\
 $c$ & 0 & 0 & $c$ & 0 \\
 $d$ & 0 & 0 & 0 & $d$""",
    "DUAL": r"""Dual Number & $a$ & $b$ \\
 $a$ & $a$ & $b$  \\
 $b$ & $b$ & 0\\""",
    "CROSS": r"""Cross Product & $a$ & $b$ & $c$ \\
 $a$ & 0  & c  & -b \\
 $b$ & -c & 0  & a  \\
 $c$ & b  & -a & 0  \\""",
    "M2C": r"""$M_2(\mathbb{C})$ & $a$ & $b$ & $c$ & $d$ & $e$ & $f$ & $g$ & $h$\\
 $a$ & $a$ & $b$  & $c$ & $d$  & 0     & 0      & 0      & 0\\
 $b$ & $b$ & -$a$ & $d$ & -$c$ & 0     & 0      & 0      & 0\\
 $c$ & 0     & 0      & 0     & 0      & $a$ & $b$  & $c$  & $d$\\
 $d$ & 0     & 0      & 0     & 0      & $b$ & -$a$ & $d$  & -$c$\\
 $e$ & $e$ & $f$  & $g$ & $h$  & 0     & 0      & 0      & 0\\
 $f$ & $f$ & -$e$ & $h$ & -$g$ & 0     & 0      & 0      & 0\\
 $g$ & 0     & 0      & 0     & 0      & $e$ & $f$  & $g$  & $h$\\
 $h$ & 0     & 0      & 0     & 0      &$f$  & -$e$ & $h$  & -$g$\\""",
}

# Table 1: weight size, weight reuse, multiplies, values loaded.
TABLE_1 = {
    "R": (1, 1, 1, 2),
    "C": (2, 2, 4, 4),
    "M2R": (4, 2, 8, 8),
    "M3R": (9, 3, 27, 18),
    "M4R": (16, 4, 64, 32),
    "M2C": (8, 4, 32, 16),
    "H": (4, 4, 16, 8),
    "diagonal(4)": (4, 1, 4, 8),
    "DUAL": (2, None, 3, 4),
    "CROSS": (3, 2, 6, 6),
}


@over_catalogue
def test_table_1_follows_from_the_multiplication_table(algebra):
    row = (algebra.dim, algebra.weight_reuse, algebra.multiplies, algebra.values_loaded)
    assert row == TABLE_1[algebra.name]


@pytest.mark.parametrize("name", PAPER_TABLES)
def test_the_papers_source_can_be_pasted_in(name):
    assert Algebra.parse(PAPER_TABLES[name]).terms == CATALOGUE[name].terms


@over_all
def test_every_form_of_a_table_gives_the_same_algebra(algebra, tmp_path):
    data = algebra.to_dict()
    assert Algebra.from_table(data) == algebra
    assert Algebra.parse(algebra.table()) == algebra
    dense = [[[algebra.products.get((i, j), {}).get(k, 0) for k in range(algebra.dim)] for j in range(algebra.dim)]
             for i in range(algebra.dim)]  # fmt: skip
    assert Algebra.from_table(dense, name="dense").terms == algebra.terms
    labels = algebra.components
    nested = {a: {b: dense[i][j] for j, b in enumerate(labels)} for i, a in enumerate(labels)}
    assert Algebra.from_table(nested, name="nested").terms == algebra.terms
    (tmp_path / "mine.json").write_text(json.dumps(data))
    assert algebras.get(tmp_path / "mine.json") == algebra
    (tmp_path / "mine.toml").write_text(f"table = '''\n{algebra.table()}\n'''")
    assert Algebra.load(tmp_path / "mine.toml") == algebra
    (tmp_path / "mine.txt").write_text(algebra.table())
    assert algebras.get(str(tmp_path / "mine.txt")) == algebra


def test_numbers_and_odd_labels_are_entries_too():
    assert Algebra.from_table([[1, 2], [2, -1]], name="C").terms == C.terms
    quaternions = Algebra.parse("""
        H | 1   i   j   k
        1 | 1   i   j   k
        k | k   j  -i  -1
        i | i  -1   k  -j
        j | j  -k  -1   i
    """)
    assert quaternions.terms == H.terms
    odd = Algebra.from_table([["2a-b", "a+a"], ["0", "3*b"]], name="odd")
    assert odd.products == {(0, 0): {0: 2, 1: -1}, (0, 1): {0: 2}, (1, 1): {1: 3}}
    assert Algebra.parse(odd.table()) == odd
    greek = Algebra.parse(r"dual & $1$ & $\varepsilon$\\ $1$ & $1$ & $\varepsilon$\\".replace(r"\\ ", "\n") + "\n"
                          r"$\varepsilon$ & $\varepsilon$ & 0")  # fmt: skip
    assert (greek.components, greek.terms) == (("1", "varepsilon"), DUAL.terms)
    tens = Algebra.from_table({"name": "tens", "components": ["1", "10"], "table": [["10*1", "-10"], ["0", "2*10"]]})
    assert tens.products == {(0, 0): {0: 10}, (0, 1): {1: -1}, (1, 1): {1: 2}}
    assert Algebra.parse(tens.table()) == tens


@pytest.mark.parametrize(
    "label",
    [
        "0",
        "2a",
        "*a",
        "",
        "e+",
        "a b",
        "a-b",
        "x|y",
        "&",
        "$a$",
        "\\a",
        "=",
        ":",
        "00",
        "01",
        "a\nb",
        "\u2028",
        3,
        None,
    ],
)
def test_a_component_that_could_not_be_read_back_is_refused(label):
    table = {"name": "dual", "components": [label, "u"], "table": [[1, 2], [2, 0]]}
    with pytest.raises(ValueError, match="cannot name a component: a name must be text that begins with"):
        Algebra.from_table(table)
    with pytest.raises(ValueError, match="cannot name a component"):
        Algebra("dual", (label, "u"), DUAL.terms)


@pytest.mark.parametrize("name", ["a|b", "a & b", "$C$", "\\C", " C", "C ", "C\nD", 5, ("C",), b"C"])
def test_an_algebra_whose_name_could_not_be_read_back_is_refused(name):
    for refused in (name, ""):
        with pytest.raises(ValueError, match="cannot name an algebra: a name must be text"):
            Algebra(refused, ("a", "b"), DUAL.terms)
    with pytest.raises(ValueError, match="cannot name an algebra"):
        Algebra.from_table({"name": name, "components": ["a", "b"], "table": [[1, 2], [2, 0]]})


@st.composite
def made_up(draw):
    """Draw a name, components and terms that may or may not form an algebra."""
    names = st.text(max_size=6) | st.sampled_from(["1", "2", "i", "e1", "e_{12}", "[/b]", "x'", "²", "0", "2a", "a+"])
    components = tuple(draw(st.lists(names, min_size=1, max_size=4)))
    place = st.integers(0, len(components) - 1)
    coefficient = st.integers(-3, 3) | st.sampled_from([2**24, -(2**24), 2**24 + 1, 10**30])
    terms = draw(st.dictionaries(st.tuples(place, place, place), coefficient, max_size=8))
    return draw(names), components, tuple(sorted((*place, c) for place, c in terms.items()))


@settings(max_examples=200, deadline=None)
@given(made_up())
def test_an_algebra_that_can_be_made_survives_its_files(parts):
    try:
        algebra = Algebra(*parts)
    except ValueError:
        return
    assert Algebra.from_table(json.loads(json.dumps(algebra.to_dict()))) == algebra
    assert Algebra.parse(algebra.table()) == algebra


def test_an_unnamed_file_is_named_after_itself(tmp_path):
    (tmp_path / "split.toml").write_text('table = [["a", "b"], ["b", "a"]]')
    assert Algebra.load(tmp_path / "split.toml").name == "split"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("X | a b\na | a b\nb | b q", r"row 'b', column 'b': 'q' is not a combination of a, b"),
        ("X | a b\na | a b\nb | b", r"row 'b': has 1 entries; the table must be square"),
        ("X | a b\na | a b", r"must be square: it has 2 components \(a, b\) and 1 rows"),
        ("X | a b\na | a b\nc | b a", r"row 'c': must be named after one of the columns a, b"),
        ("X | a b\na | a b\na | b a", r"row 'b' is missing"),
        ("X | a a\na | a a\na | a a", r"component 'a' is named twice"),
        ("X a b", r"the '\|' is missing"),
        ("  \n", "the table is empty"),
        ([["a", "b"], ["b"]], r"row '2': has 1 entries; the table must be square, and it has 2 rows"),
        ([[1, 2], [2, 3]], r"row '2', column 'b': 3 is the number of no component"),
        ([[1, 2], 7], r"row '2': must be a list"),
        ([[[1, 0], [0, 1]], [[0, 1], [1]]], r"row '2', column 'b': a list entry must hold 2 whole numbers"),
        ([[1.5]], r"row '1', column 'a': an entry must be text, a whole number"),
        ([["--a"]], r"row '1', column 'a': '--a' is not a combination"),
        ([[""]], r"row '1', column 'a': the entry is empty"),
        ({"a": {"a": "a", "b": "b"}}, r"row 'a': must be a dict with a product for each of a"),
        ({"table": [["a"]], "size": 3}, r"unknown key 'size'"),
        ({"table": "X | a\na | a", "components": ["a", "b"]}, r"names the components a, but 'components' lists a, b"),
        ({"table": [["a"]], "components": ["a", "b"]}, r"must be square: it has 2 components \(a, b\) and 1 rows"),
        ([], "with at least one row"),
        (7, "a multiplication table must be text"),
        ([["9" * 30 + "a"]], "is not a combination of a"),
        ([["99999999a"]], r"term \(0, 0, 0, 99999999\) must be .* a coefficient from -16777216 to 16777216"),
        ([[[10**30]]], r"must be \(i, j, k, coefficient\)"),
        ([[[10**155]]], r"must be \(i, j, k, coefficient\)"),
        ([[0, 0], [0, 0]], "every product in its table is zero; at least one must not be"),
        ({"table": [["a"]], "components": None}, "'components' must be a list of names; got None"),
        ({"table": [["a"]], "components": 3}, "'components' must be a list of names; got 3"),
        ({"table": [["a"]], "components": "a"}, "'components' must be a list of names; got 'a'"),
        ({"table": {"table": [["a"]]}}, "row 'table': must be a dict with a product for each of table"),
        (
            {"components": ["a"], "terms": [[0, 0, 0]]},
            r"'terms' must be a list of four whole numbers each; got \[0, 0, 0\]",
        ),
        ({"components": ["a"], "terms": [[0, 0, 0, 0.5]]}, "'terms' must be a list of four whole numbers each"),
        (
            {"components": ["a"], "terms": [[0, 0, 0, 1], [0, 0, 0, 2]]},
            "must hold each i, j, k once; it has 0, 0, 0 twice",
        ),
        ({"components": ["a"], "terms": [[0, 0, 1, 1]]}, "with indices from 0 to 0"),
        ({"components": ["a"], "terms": 7}, "'terms' must be a list of four whole numbers each; got 7"),
        ({"terms": [[0, 0, 0, 1]]}, "has no components"),
        ({"components": [f"e{k}" for k in range(257)], "terms": []}, "must have at most 256 components"),
    ],
)
def test_a_malformed_table_says_which_row_and_what_is_wrong(table, message):
    with pytest.raises(ValueError, match=message):
        Algebra.from_table(table, name="X")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.json", "{", "x.json: is not valid JSON"),
        ("x.toml", "=", "x.toml: is not valid TOML"),
        ("x.toml", 'table = [["a", "q"], ["a", "b"]]', "x.toml: row '1', column 'b': 'q' is not a combination"),
        ("x.yaml", "", "must end in .toml, .json, .txt"),
        ("x.txt", None, "cannot be read"),
        ("x.json", "[" * 100_000, "x.json: is not valid JSON"),
        ("x.toml", "table = " + "[" * 5_000, "x.toml: is not valid TOML"),
        ("x.json", "[" * 900 + "]" * 900, r"x.json: .*must be square|x.json: row '1'"),
        ("x.json", '{"name": 5, "table": [[1]]}', "5 cannot name an algebra"),
        ("x|y.json", "[[1]]", r"'x\|y' cannot name an algebra"),
    ],
)
def test_a_bad_file_is_named_in_the_error(tmp_path, name, text, message):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        Algebra.load(tmp_path / name)


def test_a_file_that_is_no_text_is_named_in_the_error(tmp_path):
    (tmp_path / "x.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"x\.json: cannot be read \(it is not UTF-8 text\)"):
        Algebra.load(tmp_path / "x.json")


def test_a_nameless_table_and_malformed_terms_are_refused():
    with pytest.raises(ValueError, match="has no name"):
        Algebra.from_table([["a"]])
    halves = (((0, 0, 0, 0.5),), ((0, 0, 0, 1.0),), ((0, 0, 0, True),), ((0, 0, 0, Fraction(1, 2)),))
    for terms in (
        ((0, 0, 1, 1),), ((0, 0, 0, 0),), ((0, 0, 0, 1), (0, 0, 0, 1)), ((0, 0, 0),), (7,), [(0, 0, 0, 1)], *halves
    ):  # fmt: skip
        with pytest.raises(ValueError, match="algebra 'bad'"):
            Algebra("bad", ("a",), terms)


@pytest.mark.parametrize(
    ("name", "near"),
    [("M2Q", "'M2R'"), ("m3rr", "'M3R'"), ("duals", "'DUAL'"), ("cliford(n)", r"'clifford\(n\)'"),
     ("Quaternian", "'quaternion'")],
)  # fmt: skip
def test_an_unknown_name_suggests_the_nearest(name, near):
    with pytest.raises(
        ValueError, match=f"unknown algebra '{name.replace('(', '.').replace(')', '.')}'. Did you mean {near}"
    ):
        algebras.get(name)


def test_get_finds_names_and_constructors():
    for algebra in (*CATALOGUE.values(), clifford(1, 1), cayley_dickson(3), cyclic(3), diagonal(7), matrix(2, over=H)):
        assert algebras.get(algebra.name) == algebra
    for name, message in {
        "clifford(1,2,3,4)": "clifford takes 1 to 3 numbers; got 4",
        "matrix(2,3)": "matrix takes one number; got 2",
        "cyclic()": "cyclic takes one number; got 0",
    }.items():
        with pytest.raises(ValueError, match=message):
            algebras.get(name)
    with pytest.raises(ValueError, match="n must be at least 1; got 0"):
        algebras.get("diagonal(0)")


@pytest.mark.parametrize(
    ("algebra", "names"),
    [
        (R, "real|reals|Real Numbers|r"),
        (C, "complex|Complex|complex_numbers|c"),
        (H, "quaternion|quaternions|Quaternions|QUATERNION|h"),
        (SPLIT_QUATERNIONS, "split-quaternion|split-quaternions|Split Quaternions|split_quaternion|splitquaternion"),
        (BIQUATERNIONS, "biquaternion|biquaternions|Bi-Quaternions"),
        (cayley_dickson(3), "octonion|octonions|Octonion|cayley-dickson(3)"),
        (cayley_dickson(4), "sedenion|sedenions"),
        (DUAL, "dual|dual numbers|Dual-Numbers"),
        (CROSS, "cross|cross product|cross-product"),
        (clifford(2, 0), "Cl(2,0)|Cl(2, 0)|cl(2,0)|cl20|Cl20|Cl (2,0)|Cl(2,0,0)|Clifford(2,0)|clifford(2, 0)"),
        (clifford(3, 0, 1), "Cl(3,0,1)|cl301|CL301|cl( 3, 0, 1 )"),
        (clifford(1, 0), "split-complex|Split Complex|hyperbolic|hyperbolic numbers"),
        (M2R, "M2(R)|M_2(R)|m2r|M2r|m2(real)|matrix(2)|Matrix(2)"),
        (M2C, "M2(C)|m2c|M_2(C)"),
        (matrix(2, over=H), "M2(H)|m2h|M2(quaternions)"),
        (diagonal(4), "Diagonal(4)|diagonal( 4 )"),
    ],
)  # fmt: skip
def test_names_that_people_type_find_their_algebra(algebra, names):
    for name in names.split("|"):
        assert algebras.get(name) == algebra, name


@pytest.mark.parametrize("name", ["bicomplex", *algebras.ALIASES])
def test_a_common_name_finds_an_algebra_that_its_own_name_finds_again(name):
    found = algebras.get(name)
    assert algebras.get(found.name) == found
    over = algebras.get(f"M2({name})")
    assert over == matrix(2, over=found)
    assert algebras.get(over.name) == over
    assert f'`"{name}"`' in (ROOT / "docs" / "guides" / "choosing.md").read_text(), "choosing.md lists all names"


def test_bicomplex_numbers_are_complex_numbers_with_complex_coefficients():
    assert algebras.get("bicomplex").terms == tensor(C, C).terms


@pytest.mark.parametrize(
    ("name", "message"),
    [("Cl(2)", "Cl takes 2 to 3 numbers; got 1"), ("cl2", "unknown algebra 'cl2'"), ("Q", "unknown algebra 'Q'"),
     ("diagonal(-4)", "unknown algebra"), ("M2(-R)", "unknown algebra"), ("M2(Q)", "unknown algebra"),
     ("cl2000", "unknown algebra"), ("Cl(-2,0)", "unknown algebra"), ("", "unknown algebra")],
)  # fmt: skip
def test_names_that_may_mean_several_algebras_or_none_are_errors(name, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        algebras.get(name)


def test_an_algebra_that_a_name_describes_is_constructed_once():
    for name in ("cl20", "M5R", "clifford(2, 1)", "diagonal(9)"):
        assert algebras.get(name) is algebras.get(name)


def test_numbers_with_blanks_between_them_are_several_numbers():
    assert algebras.get("clifford(0 2)") == algebras.get("Cl(0 2)") == clifford(0, 2)


@over_all
def test_an_algebra_is_a_value(algebra):
    assert algebra.products  # derived, and not pickled
    again = pickle.loads(pickle.dumps(algebra))
    assert again == algebra
    assert hash(again) == hash(algebra)
    assert {algebra: 1}[again] == 1
    with pytest.raises(AttributeError):
        algebra.name = "other"
    for mapping in (algebra.products, next(iter(algebra.products.values())), *(algebra.conjugation or ())):
        with pytest.raises(TypeError, match="does not support item assignment"):
            mapping[0] = 7
    assert deepcopy(algebra) == algebra


@pytest.mark.parametrize(
    "name",
    ["clifford(9,0)", "clifford(9,9)", "clifford(1000000000)", "cayley_dickson(9)", "cyclic(257)", "cyclic(1000000000)",
     "diagonal(257)", "matrix(17)", "M99R", "M99H"],
)  # fmt: skip
def test_an_algebra_that_is_too_large_is_refused_before_it_is_built(name):
    with pytest.raises(ValueError, match="an algebra must have at most 256 components; this one would have more"):
        algebras.get(name)


def test_so_are_sums_and_products_that_would_be_too_large():
    large = diagonal(200)
    for build in (lambda: direct_sum(large, large), lambda: tensor(large, C), lambda: matrix(2, over=large)):
        with pytest.raises(ValueError, match="at most 256 components"):
            build()
    assert clifford(8, 0).dim == cyclic(256).dim == matrix(16).dim == diagonal(256).dim == 256


def test_what_is_no_algebra_is_refused_by_constructors():
    for build in (lambda: matrix(2, over=3), lambda: tensor("H", C), lambda: direct_sum(C, 2), lambda: opposite("C")):
        with pytest.raises(ValueError, match="an algebra must be an Algebra"):
            build()


# Laws ----------------------------------------------------------------------------------------------------------------


def dense(algebra):
    numbers = st.integers(-5, 5)
    return st.fixed_dictionaries(dict.fromkeys(range(algebra.dim), numbers))


@over_catalogue
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_unit_associativity_and_commutativity_hold_for_any_elements(algebra, data):
    x, y, z = (data.draw(dense(algebra)) for _ in range(3))
    times = algebra.multiply
    if algebra.associative:
        assert times(times(x, y), z) == times(x, times(y, z))
    if algebra.commutative:
        assert times(x, y) == times(y, x)
    if algebra.unit:
        unit = {k: u for k, u in enumerate(algebra.unit) if u}
        nonzero = {k: v for k, v in x.items() if v}
        assert times(unit, x) == nonzero == times(x, unit)


def associates(algebra):
    """Whether the product is associative for all triples of components."""
    basis = [{i: 1} for i in range(algebra.dim)]
    times = algebra.multiply
    return all(times(times(x, y), z) == times(x, times(y, z)) for x in basis for y in basis for z in basis)


@over_all
def test_associativity_is_decided_as_by_trying_all_triples(algebra):
    assert algebra.associative == associates(algebra)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 3), st.data())
def test_associativity_of_any_table_is_decided_as_by_trying_all_triples(dim, data):
    cells = st.lists(st.integers(-1, 1), min_size=dim, max_size=dim)
    table = data.draw(st.lists(st.lists(cells, min_size=dim, max_size=dim), min_size=dim, max_size=dim))
    assume(any(any(map(any, row)) for row in table))
    algebra = Algebra.from_table(table, name="any")
    assert algebra.associative == associates(algebra)


def test_the_known_properties_are_found():
    assert [a.name for a in CATALOGUE.values() if not a.associative] == ["CROSS"]
    assert [a.name for a in CATALOGUE.values() if a.commutative] == ["R", "C", "diagonal(4)", "DUAL"]
    assert [a.name for a in CATALOGUE.values() if a.unit is None] == ["CROSS"]
    octonions, sedenions = cayley_dickson(3), cayley_dickson(4)
    assert (octonions.associative, sedenions.associative, sedenions.dim) == (False, False, 16)
    assert Algebra.from_table([["2a"]], name="half").unit[0] * 2 == 1
    one_sided = Algebra.from_table([["a", "b"], ["0", "0"]], name="one-sided")
    assert one_sided.unit is None


def test_conjugation_is_found_just_where_it_exists():
    with_conjugation = [a.name for a in [*CATALOGUE.values(), cayley_dickson(3)] if a.conjugation]
    assert with_conjugation == ["R", "C", "M2R", "H", "DUAL", "cayley_dickson(3)"]
    assert C.conjugation == ({0: 1}, {1: -1})
    assert H.conjugation == ({0: 1}, {1: -1}, {2: -1}, {3: -1})
    assert M2R.conjugation == ({3: 1}, {1: -1}, {2: -1}, {0: 1})  # the adjugate [[d, -b], [-c, a]]


def test_constructors_agree_with_each_other():
    assert cayley_dickson(0).terms == R.terms
    assert cayley_dickson(1).terms == C.terms == clifford(0, 1).terms
    assert cayley_dickson(2).terms == H.terms == clifford(0, 2).terms
    assert clifford(0, 0, 1).terms == DUAL.terms
    assert clifford(1, 0).terms == cyclic(2).terms
    assert matrix(2, over=C) == M2C
    assert matrix(1, over=H).terms == H.terms
    assert direct_sum(R, R, R).terms == diagonal(3).terms
    assert tensor(H, R).terms == H.terms
    assert opposite(opposite(M3R)).terms == M3R.terms
    assert opposite(C).terms == C.terms
    assert cyclic(5).commutative
    assert all(clifford(p, q, r).associative for p in range(3) for q in range(3 - p) for r in range(2))


def test_the_group_algebra_of_s3_is_that_of_a_group_and_other_tables_are_refused():
    from itertools import permutations

    elements = list(permutations(range(3)))
    table = [[elements.index(tuple(g[h[n]] for n in range(3))) for h in elements] for g in elements]
    s3 = group_algebra(table, name="S3")
    assert (s3.dim, s3.associative, s3.commutative, s3.unit) == (6, True, False, (1, 0, 0, 0, 0, 0))
    with pytest.raises(ValueError, match="row 1 of the Cayley table must hold each of 0 to 1 once"):
        group_algebra([[0, 1], [1, 1]])
    with pytest.raises(ValueError, match="not that of a group"):
        group_algebra([[0, 2, 1], [2, 1, 0], [1, 0, 2]])


def test_a_change_of_basis_that_is_none_is_refused():
    with pytest.raises(ValueError, match="linearly independent"):
        change_basis(C, [[1, 0], [2, 0]], "x")
    with pytest.raises(ValueError, match="must be 2 rows of 2 whole numbers"):
        change_basis(C, [[1, 0]], "x")
    with pytest.raises(ValueError, match="Scale the basis"):
        change_basis(C, [[2, 0], [0, 1]], "x")


# Blocks --------------------------------------------------------------------------------------------------------------


def test_blocks_are_those_of_the_design():
    found = {a.name: [(b.num_copies, b.size) for b in a.blocks] for a in CATALOGUE.values()}
    assert found == {
        "R": [(1, 1)],
        "C": [(1, 2)],
        "M2R": [(2, 2)],
        "M3R": [(3, 3)],
        "M4R": [(4, 4)],
        "M2C": [(2, 4)],
        "H": [(1, 4)],
        "diagonal(4)": [(1, 1)] * 4,
        "DUAL": [(1, 2)],
        "CROSS": [(1, 3)],
    }
    assert [a.name for a in [*CATALOGUE.values(), *CONSTRUCTED] if a.folded] == [
        "R", "M2R", "M3R", "M4R", "opposite(M2R)",
    ]  # fmt: skip
    assert [(b.num_copies, b.size) for b in direct_sum(C, M2R).blocks] == [(1, 2), (2, 2)]
    assert M2R.order == (0, 2, 1, 3)  # column by column


@over_all
def test_blocks_are_left_multiplication(algebra):
    """Together, the copies of all blocks have exactly the entries of the table."""
    covered = set()
    for block in algebra.blocks:
        for copy in block.copies:
            for p, row in enumerate(block.entries):
                for q, entry in enumerate(row):
                    covered |= {(i, copy[q], copy[p], c) for i, c in entry}
    assert covered == set(algebra.terms)
    assert sorted(algebra.order) == list(range(algebra.dim))


def test_spans_leave_out_nothing_but_zeros():
    for algebra in ALGEBRAS:
        for block in algebra.blocks:
            inside = {
                (p, q)
                for rows, cols in block.spans
                for p in range(rows.start, rows.stop)
                for q in range(cols.start, cols.stop)
            }
            filled = {(p, q) for p, row in enumerate(block.entries) for q, entry in enumerate(row) if entry}
            assert filled <= inside
            assert block.waste == pytest.approx(1 - len(inside) / block.size**2)
    assert DUAL.blocks[0].spans == ((slice(0, 1), slice(0, 1)), (slice(1, 2), slice(0, 2)))
    assert CROSS.blocks[0].waste == pytest.approx(2 / 9)


# Fewer multiplies ----------------------------------------------------------------------------------------------------


@over_all
def test_a_bilinear_algorithm_multiplies_by_the_table(algebra):
    assert algebra.bilinear.terms == algebra.terms
    assert algebra.bilinear.rank <= max(algebra.multiplies, 1)


def test_ranks_are_the_best_known():
    found = {a.name: a.bilinear.rank for a in [*CATALOGUE.values(), tensor(H, DUAL)]}
    assert found == {
        "R": 1,
        "C": 3,
        "M2R": 7,
        "M3R": 23,
        "M4R": 49,
        "M2C": 21,
        "H": 8,
        "diagonal(4)": 4,
        "DUAL": 3,
        "CROSS": 5,
        tensor(H, DUAL).name: 24,
    }


def test_rounding_errors_grow_with_what_is_summed():
    assert C.bilinear.growth == pytest.approx(2**0.5)
    assert H.bilinear.growth == pytest.approx(2**0.5)
    assert M2R.bilinear.growth == pytest.approx(2)
    for plain in (R, DUAL, diagonal(4), cayley_dickson(3), clifford(1, 1, 1)):
        assert plain.bilinear.rank == plain.multiplies
        assert plain.bilinear.growth == 1
        assert 1 <= plain.bilinear.half_growth < 1.415
