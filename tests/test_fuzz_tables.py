"""Random multiplication tables: each one is read as an algebra or refused with a ValueError."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algebranets import algebra as algebras
from algebranets.algebra import CATALOGUE, Algebra
from fuzz import fuzzed

LABELS = st.sampled_from(["a", "b", "1", "0", "-a", "2b", "a+b", "3*1", "", "[/b]", "e_1", "x|y", "\\a", "ﬁ"])
NUMBERS = st.integers(-5, 5) | st.integers() | st.floats() | st.booleans() | st.none()
ANYTHING = st.recursive(
    NUMBERS | LABELS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(LABELS, inner, max_size=4),
    max_leaves=20,
)
TABLES = st.lists(st.lists(NUMBERS | LABELS | st.lists(NUMBERS, max_size=3), max_size=3), max_size=3)
DICTS = st.fixed_dictionaries(
    {},
    optional={
        "name": ANYTHING,
        "components": st.lists(LABELS, max_size=3) | ANYTHING,
        "table": TABLES | ANYTHING,
        "terms": st.lists(st.lists(st.integers(-1, 3), min_size=4, max_size=4), max_size=6) | ANYTHING,
    },
)


def assert_it_is_an_algebra_or_an_error(read):
    try:
        algebra = read()
    except ValueError:
        return
    assert Algebra.from_table(json.loads(json.dumps(algebra.to_dict()))) == algebra
    assert Algebra.parse(algebra.table()) == algebra
    assert algebra.bilinear.terms == algebra.terms
    for derived in ("unit", "associative", "commutative", "conjugation", "weight_reuse"):
        getattr(algebra, derived)


@fuzzed(0.125)
@given(TABLES | DICTS | ANYTHING)
def test_any_data(table):
    assert_it_is_an_algebra_or_an_error(lambda: Algebra.from_table(table, name="any"))


@st.composite
def damaged(draw, texts):
    """Draw a text with some of its characters replaced, removed or inserted."""
    text = list(draw(texts))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text) - 1)) if text else 0
        text[at : at + draw(st.integers(0, 3))] = draw(
            st.text(max_size=3) | st.sampled_from([["|"], ["-"], ["0"], ["\\"]])
        )
    return "".join(text)


SMALL = [algebra for algebra in CATALOGUE.values() if algebra.dim <= 4]


@fuzzed(0.125)
@given(damaged(st.sampled_from([algebra.table() for algebra in SMALL])) | st.text(max_size=60))
def test_any_text(text):
    assert_it_is_an_algebra_or_an_error(lambda: Algebra.parse(text, name="any"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


FILES = {
    ".json": [json.dumps(algebra.to_dict()) for algebra in SMALL] + ['{"table": [["a", "b"], ["b", "-a"]]}'],
    ".toml": [f"name = 'any'\ntable = '''\n{algebra.table()}\n'''" for algebra in SMALL],
    ".txt": [algebra.table() for algebra in SMALL],
}


@fuzzed(0.1)
@given(
    st.sampled_from(sorted(FILES)).flatmap(
        lambda suffix: st.tuples(
            st.just(suffix), damaged(st.sampled_from(FILES[suffix])).map(lambda text: text.encode("utf-8", "replace"))
        )
    )
    | st.tuples(st.sampled_from(sorted(FILES)), st.binary(max_size=60))
)
def test_any_file(folder, file):
    suffix, content = file
    path = folder / f"any{suffix}"
    path.write_bytes(content)
    assert_it_is_an_algebra_or_an_error(lambda: algebras.get(path))
