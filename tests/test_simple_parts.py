"""The simple parts of algebras, and products that are computed in them."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest
import torch

import algebranets as an
from algebranets import product
from algebranets.algebra import (
    BIQUATERNIONS,
    CATALOGUE,
    CROSS,
    DUAL,
    M2C,
    M2R,
    SPLIT_QUATERNIONS,
    Algebra,
    C,
    H,
    Part,
    R,
    cayley_dickson,
    change_basis,
    clifford,
    cyclic,
    diagonal,
    direct_sum,
    get,
    isomorphic,
    matrix,
    opposite,
    tensor,
)
from algebranets.product import parts as lowering
from algebranets.product.thresholds import GPU
from conftest import ALGEBRAS, KINDS, RANDOM, S3, needs_triton

#: Algebras, their simple parts, and the multiplies of a product by blocks of the table and by parts.
KNOWN = [
    (clifford(2, 0), "M2(R)", 16, 8),
    (clifford(1, 1), "M2(R)", 16, 8),
    (clifford(0, 2), "H", 16, 16),
    (clifford(3, 0), "M2(C)", 64, 32),
    (clifford(1, 2), "M2(C)", 64, 32),
    (tensor(C, H), "M2(C)", 64, 32),
    (clifford(0, 3), "2 H", 64, 32),
    (clifford(1, 3), "M2(H)", 256, 128),
    (clifford(3, 1), "M4(R)", 256, 64),
    (clifford(4, 1), "M4(C)", 1024, 256),
    (tensor(H, H), "M4(R)", 256, 64),
    (tensor(C, C), "2 C", 16, 8),
    (S3, "2 R + M2(R)", 36, 10),
    (cyclic(8), "2 R + 3 C", 64, 14),
    (cyclic(5), "R + 2 C", 25, 9),
    (SPLIT_QUATERNIONS, "M2(R)", 16, 8),
    (BIQUATERNIONS, "M2(C)", 64, 32),
    (matrix(2, over=clifford(2, 0)), "M4(R)", 128, 64),
    (direct_sum(C, M2R, R), "R + M2(R) + C", 13, 13),
]
by_known = pytest.mark.parametrize(("algebra", "parts", "before", "after"), KNOWN, ids=lambda value: str(value))


@by_known
def test_parts_and_multiplies_of_known_algebras(algebra, parts, before, after):
    structure = algebra.structure
    assert structure.is_semisimple
    assert str(structure) == parts
    assert (algebra.multiplies_by_blocks, structure.multiplies) == (before, after)
    assert algebra.stored.multiplies_by_blocks == after
    assert (algebra.change is None) == (before == after)
    assert structure.is_orthogonal


def assert_matrix_units(algebra, tolerance=0.0):
    """Check that the units of the structure multiply like the matrices of its parts."""
    units = [{k: c for k, c in enumerate(unit) if c} for unit in algebra.structure.units]
    products, offset = {}, 0
    for part in algebra.structure.parts:
        for i, j, k, sign in part.terms:
            products[i + offset, j + offset] = {n: sign * c for n, c in units[k + offset].items()}
        offset += part.dim
    for i, x in enumerate(units):
        for j, y in enumerate(units):
            expected, found = products.get((i, j), {}), algebra.multiply(x, y)
            for k in {*expected, *found}:
                assert abs(expected.get(k, 0) - found.get(k, 0)) <= tolerance


@pytest.mark.parametrize(("p", "q"), [(p, n - p) for n in range(1, 6) for p in range(n + 1)])
def test_clifford_algebras_are_split_exactly(p, q):
    """The classification by p - q modulo 8, in whole numbers and fractions."""
    algebra, n = clifford(p, q), p + q
    kinds = {0: "R", 1: "R", 2: "R", 3: "C", 4: "H", 5: "H", 6: "H", 7: "C"}
    over = kinds[(p - q) % 8]
    count = 2 if (p - q) % 4 == 1 else 1
    dim = {"R": 1, "C": 2, "H": 4}[over]
    size = round((2**n / count / dim) ** 0.5)
    assert algebra.structure.parts == (Part(over, size),) * count
    assert algebra.structure.is_exact
    assert all(isinstance(c, int | Fraction) for unit in algebra.structure.units for c in unit)
    assert_matrix_units(algebra)
    if algebra.change is not None:
        assert {abs(c) for row in algebra.change.weights for c in row} <= {0.0, 1.0}


@pytest.mark.parametrize("algebra", CATALOGUE.values(), ids=str)
def test_the_papers_algebras_are_split_exactly_or_not_semisimple(algebra):
    structure = algebra.structure
    if algebra == DUAL:
        assert (structure.radical_dim, str(structure)) == (1, "not semisimple: its radical has dimension 1")
    elif algebra == CROSS:
        assert (structure.radical_dim, str(structure)) == (None, "not associative")
    else:
        assert structure.is_exact
        assert structure.multiplies == algebra.multiplies_by_blocks
        assert_matrix_units(algebra)
    assert algebra.change is None  # the paper's tables show their parts already


@pytest.mark.parametrize("algebra", [S3, cyclic(8), cyclic(7), tensor(cyclic(5), clifford(2, 0))], ids=str)
def test_algebras_with_irrational_units_are_split_in_float64(algebra):
    assert not algebra.structure.is_exact
    assert_matrix_units(algebra, 1e-12)


@pytest.mark.parametrize(
    ("algebra", "radical"),
    [
        (DUAL, 1),
        (clifford(1, 1, 1), 4),
        (tensor(M2R, DUAL), 4),
        (clifford(0, 0, 3), 7),
        (direct_sum(H, DUAL), 1),
        (Algebra.from_products("nilpotent", {(0, 0): {1: 1}}, 2), 2),
        (Algebra.from_products("triangular", {(0, 0): {0: 1}, (0, 1): {1: 1}, (1, 2): {1: 1}, (2, 2): {2: 1}}, 3), 1),
    ],
    ids=str,
)
def test_algebras_with_a_radical_go_through_blocks(algebra, radical):
    assert algebra.structure.radical_dim == radical
    assert not algebra.structure.is_semisimple
    assert algebra.structure.parts == ()
    assert algebra.stored is algebra


@pytest.mark.parametrize("algebra", [*RANDOM, cayley_dickson(3), CROSS], ids=str)
def test_algebras_that_are_not_associative_go_through_blocks(algebra):
    assert algebra.structure.radical_dim is None
    assert algebra.stored is algebra


def random_basis(rng, dim):
    """Return a random matrix of whole numbers with determinant 1."""
    rows = [[int(i == j) for j in range(dim)] for i in range(dim)]
    for _ in range(rng.choice([0, dim // 2, dim])):
        i, j = rng.sample(range(dim), 2)
        sign = rng.choice([-1, 1])
        rows[i] = [a + sign * b for a, b in zip(rows[i], rows[j], strict=True)]
    return rows


def simple(part):
    return matrix(part.size, over={"R": R, "C": C, "H": H}[part.over])


#: Tensor products of R, C and H: M_m(D) (x) M_n(E) is m n x m n matrices over D (x) E.
PRODUCTS = {("C", "C"): ("C", 1, 2), ("C", "H"): ("C", 2, 1), ("H", "C"): ("C", 2, 1), ("H", "H"): ("R", 4, 1)}


def random_algebra(rng):
    """Return a sum of simple algebras, or a tensor product of two, in a random basis, and its parts."""
    if rng.random() < 0.3:
        a, b = Part(rng.choice("RC"), rng.choice([1, 2])), Part(rng.choice("RCH"), 1)
        over, factor, count = PRODUCTS.get((a.over, b.over), (max(a.over, b.over, key="RCH".index), 1, 1))
        parts, algebra = [Part(over, a.size * factor)] * count, tensor(simple(a), simple(b))
    else:
        parts = [Part(rng.choice("RCH"), rng.choice([1, 1, 2]))]
        while rng.random() < 0.6 and sum(part.dim for part in parts) <= 7:
            parts.append(Part(rng.choice("RCH"), 1))
        algebra = direct_sum(*map(simple, parts))
    if 1 < algebra.dim <= 13:
        algebra = change_basis(algebra, random_basis(rng, algebra.dim), "in a random basis")
    return algebra, tuple(sorted(parts, key=lambda part: ("RCH".index(part.over), part.size)))


@pytest.mark.parametrize("seed", range(10))
def test_the_parts_found_are_the_parts_put_in(seed):
    """300 random semisimple algebras."""
    rng = random.Random(seed)
    for _ in range(30):
        algebra, parts = random_algebra(rng)
        assert algebra.structure.parts == parts
        largest = max(abs(float(c)) for unit in algebra.structure.units for c in unit)
        assert_matrix_units(algebra, 1e-8 * max(1, largest) ** 2)


def test_a_basis_that_is_not_orthogonal_is_not_computed_in():
    skewed = change_basis(clifford(2, 0), [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], "skewed")
    assert str(skewed.structure) == "M2(R)"
    assert not skewed.structure.is_orthogonal
    assert skewed.stored is skewed


def test_isomorphisms_show_the_papers_two():
    """M2(R) is the split-quaternions, and M2(C) the biquaternions."""
    for algebra, matrices in ((SPLIT_QUATERNIONS, M2R), (BIQUATERNIONS, M2C)):
        images = isomorphic(algebra, matrices)
        assert change_basis(matrices, images, "x").terms == algebra.terms
    assert [SPLIT_QUATERNIONS.products[k, k][0] for k in range(4)] == [1, -1, 1, 1]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (clifford(2, 0), clifford(1, 1)),
        (tensor(C, C), direct_sum(C, C)),
        (cyclic(3), direct_sum(C, R)),
        (opposite(H), H),
        (clifford(3, 1), clifford(2, 2)),
        (change_basis(M2R, [[1, 2, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 1]], "skewed"), SPLIT_QUATERNIONS),
    ],
    ids=str,
)
def test_isomorphisms_keep_products(a, b):
    images = [{k: c for k, c in enumerate(image) if c} for image in isomorphic(a, b)]
    for i in range(a.dim):
        for j in range(a.dim):
            found = b.multiply(images[i], images[j])
            expected = {}
            for k, c in a.products.get((i, j), {}).items():
                for n, d in images[k].items():
                    expected[n] = expected.get(n, 0) + c * d
            for n in {*found, *expected}:
                assert found.get(n, 0) == pytest.approx(expected.get(n, 0), abs=1e-9)


def test_what_is_not_isomorphic_has_no_isomorphism():
    assert isomorphic(H, M2R) is None
    assert isomorphic(diagonal(4), cyclic(4)) is None
    with pytest.raises(ValueError, match=r"DUAL is not semisimple: its radical has dimension 1\. Compare its table"):
        isomorphic(C, DUAL)


# Products -------------------------------------------------------------------------------------------------------------

CHANGED = [algebra for algebra, *_ in KNOWN if algebra.change is not None]
over_changed = pytest.mark.parametrize("algebra", CHANGED, ids=str)


@over_changed
def test_changes_of_basis_are_orthogonal(algebra):
    inputs, outputs, weights, tuples = (
        torch.tensor(rows, dtype=torch.float64)
        for rows in (algebra.change.inputs, algebra.change.outputs, algebra.change.weights, algebra.change.tuples)
    )
    eye = torch.eye(algebra.dim, dtype=torch.float64)
    torch.testing.assert_close(inputs @ outputs, eye)
    torch.testing.assert_close(weights @ tuples, eye)
    assert torch.equal(inputs.T, outputs)


@over_changed
def test_every_known_algebra_is_computed_by_its_parts(algebra):
    """Outputs and gradients are the reference's to 1e-10, in float64."""
    torch.manual_seed(0)
    x = torch.randn(3, 2 * algebra.dim, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(product.weight_shape(algebra, 3, 2), dtype=torch.float64, requires_grad=True)
    bias = torch.randn(3 * algebra.dim, dtype=torch.float64, requires_grad=True)
    results = []
    for name in ("parts", "reference"):
        y = product.linear(x, weight, bias, algebra=algebra, lowering=name)
        loss = (y * torch.arange(y.numel(), dtype=torch.float64).view_as(y)).sum()
        results.append([y, *torch.autograd.grad(loss, (x, weight, bias))])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10 * expected.abs().max().item())


def test_layers_take_it_by_default():
    layer, x = an.nn.Linear(8, 8, algebra=clifford(2, 0)), torch.randn(2, 8)
    assert layer.weight.shape == (4, 4)  # as over M2(R): nothing is expanded
    assert product.auto.linear(x, layer.weight, layer.algebra, 2, 2) == "parts"
    assert product.auto.linear(x, an.nn.Linear(8, 8, algebra=H).weight, H, 2, 2) == "blocks"


def test_in_float16_the_basis_stays():
    """A change of basis of inputs of 6e4 would overflow."""
    half, x = halving_layer(), torch.full((2, 8), 6e4, dtype=torch.float16)
    for model in (half, an.sparse(half, at_least=0.5), an.sparse(half, at_least=0.5, keep_dense=True)):
        torch.testing.assert_close(model(x), 0.5 * x)


def halving_layer():
    """Return a layer in float16 that multiplies by a half."""
    layer = an.nn.Linear(8, 8, bias=False, algebra=clifford(2, 0))
    layer.weight_tuples = torch.eye(2) * torch.tensor([0.5, 0.0, 0.0, 0.0])[:, None, None]
    return layer.half()


@needs_triton
@torch.no_grad()
def test_in_float16_kernels_change_the_basis_in_registers_only(monkeypatch):
    monkeypatch.setattr("algebranets.ops.device._has_device", lambda _: True)
    half, x = halving_layer(), torch.full((2, 8), 6e4, dtype=torch.float16)
    sparse, small = an.sparse(half, at_least=0.5, keep_dense=True), an.quantize(half, "int8")
    for most in (GPU.changed_work, 0):
        monkeypatch.setattr(product.auto, "GPU", replace(GPU, changed_work=most))
        assert product.auto.linear(x, half.weight, half.algebra, 2, 2) == ("kernels" if most else "parts")
        for model in (half, sparse, small):
            torch.testing.assert_close(model(x), 0.5 * x)
        torch.testing.assert_close(product.linear(x, half.weight, algebra=half.algebra, lowering="kernels"), 0.5 * x)


def count_changes(monkeypatch):
    """Count the changes of basis of activations."""
    calls, combine = [], lowering.combine

    def counting(grid, *args, **options):
        calls.append(grid.shape)
        return combine(grid, *args, **options)

    monkeypatch.setattr(lowering, "combine", counting)
    return calls


@pytest.mark.parametrize("algebra", [clifford(2, 0), tensor(C, C), clifford(3, 0)], ids=str)
@pytest.mark.parametrize("is_self", [True, False])
def test_attention_changes_its_basis_once_on_each_side(algebra, is_self, monkeypatch):
    layer = an.nn.MultiheadAttention(4 * algebra.dim, 2, batch_first=True, algebra=algebra).double()
    torch.nn.init.normal_(layer.in_proj_bias)
    q, k = (torch.randn(2, n, 4 * algebra.dim, dtype=torch.float64, requires_grad=True) for n in (3, 5))
    inputs = (q, q, q) if is_self else (q, k, k)
    calls = count_changes(monkeypatch)
    y, weights = layer(*inputs)
    features = [shape for shape in calls if shape[2] > 3]  # biases have at most three rows
    assert len(features) == (2 if is_self else 3)
    grads = torch.autograd.grad(y.square().sum(), [*layer.parameters()])
    layer.lowering = layer.out_proj.lowering = "reference"
    expected, expected_weights = layer(*inputs)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(weights, expected_weights)
    for found, grad in zip(grads, torch.autograd.grad(expected.square().sum(), [*layer.parameters()]), strict=True):
        torch.testing.assert_close(found, grad)


def test_relative_attention_changes_its_basis_once_on_each_side(monkeypatch):
    layer = an.nn.RelativeAttention(16, 2, algebra="clifford(2,0)").double()
    x, u, v = torch.randn(2, 5, 16).double(), torch.randn(16).double(), torch.randn(16).double()
    memory, positions = torch.randn(2, 4, 16).double(), an.nn.relative.sinusoids(12, 16).double()
    calls = count_changes(monkeypatch)
    y = layer(x, positions, u, v, memory)
    assert len([shape for shape in calls if shape[2] > 1]) == 3  # inputs with memory, distances, and outputs
    for projection in layer.children():
        projection.lowering = "reference"
    torch.testing.assert_close(y, layer(x, positions, u, v, memory))


@pytest.mark.parametrize("replace", [an.quantize, lambda model, _: model], ids=["quantized", "hooked"])
def test_attention_calls_its_output_projection_as_it_is(replace):
    """A projection that was replaced gets its input in the basis of the table. A hook sees every call."""
    layer = an.nn.TransformerEncoderLayer(16, 2, 16, dropout=0.0, batch_first=True, algebra="clifford(2,0)").eval()
    x, seen = torch.randn(2, 3, 16), []
    changed = replace(layer, "int8")
    changed.self_attn.out_proj.register_forward_hook(lambda *_: seen.append(1))
    torch.testing.assert_close(changed(x), layer(x), rtol=0.1, atol=0.1)
    assert seen


def test_attention_with_an_output_projection_over_another_algebra_keeps_the_basis_of_the_table():
    layer = an.nn.MultiheadAttention(16, 2, batch_first=True, algebra="clifford(2,0)")
    layer.out_proj = an.nn.Linear(16, 16, algebra="clifford(1,1)")
    x = torch.randn(2, 3, 16)
    y, _ = layer(x, x, x)
    layer.lowering = layer.out_proj.lowering = "reference"
    torch.testing.assert_close(y, layer(x, x, x)[0])


def test_names_of_sums_and_products_are_known():
    assert get("H*H").terms == tensor(H, H).terms
    assert get("C+M2R").terms == direct_sum(C, M2R).terms
    assert get("R + C*H").terms == direct_sum(R, tensor(C, H)).terms
    for name in (str(algebra) for algebra in (*ALGEBRAS, *KINDS) if "random" not in str(algebra)):
        if "opposite" not in name and name != "S3":
            assert get(name).name
    with pytest.raises(ValueError, match=r"unknown algebra 'H\*'"):
        get("H*")
