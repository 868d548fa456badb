"""Other libraries as oracles: the same multiplication tables, outputs and gradients.

The tests of a library run if it is installed (``pip install -e '.[dev,peers]'``) and are skipped otherwise.
``pytest tests/test_peers.py -s`` prints how much was compared.

Layers that compute something else, by design or by mistake, are not compared (complextorch 2.1.1, cliffordlayers 0.1.1,
SpeechBrain 1.1.2, clifra 1.4.0):

- complextorch's GRU and LSTM multiply by gates with the complex product. torch and this library do so number by number.
- `complextorch.nn.gauss` makes one convolution of three real ones. The third pads with zeros in every padding mode.
  Without a batch axis, the bias is added along the wrong axis.
- SpeechBrain's LSTM and LiGRU split the output of a linear layer by gates, but it is stored by components: what they
  take for the first gate is the real part of all gates.
- Groups in SpeechBrain and cliffordlayers separate components. Groups in complextorch and here separate tuples.
- `CliffordLinear` of cliffordlayers fails without a bias.
- `CliffordLinear` of clifra has real numbers or rotors as weights. A linear layer made with clifra's product is
  compared instead.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import combinations

import pytest
import torch
from torch import Tensor, nn

import algebranets as an
from algebranets import C, H, algebra, from_tuples, product, tuples
from algebranets.lab.bench import peers
from peer_packages import installed, speechbrain_importable
from zoo import TWINS, outputs

F64 = torch.float64
#: Each of them must agree with the other libraries.
LOWERINGS = ["auto", "bilinear", "reference"]


@pytest.fixture(scope="module")
def compared():
    """Counts the table entries and parameters that were compared."""
    counts = Counter()
    yield counts
    print("\ncompared", " and ".join(f"{count} {what}" for what, count in counts.items()) or "nothing")


# Tables ---------------------------------------------------------------------------------------------------------------


def signatures(num_generators):
    """Return every (p, q, r) with this many generators."""
    return [(p, q, num_generators - p - q) for p in range(num_generators + 1) for q in range(num_generators - p + 1)]


@pytest.mark.parametrize("signature", [s for n in range(5) for s in signatures(n)], ids=str)
def test_a_clifford_algebra_has_the_table_of_the_clifford_package(signature, compared):
    p, q, r = signature
    layout, _ = installed("clifford").Cl(sig=[1] * p + [-1] * q + [0] * r)  # Cl(p, q, r) puts null generators first
    # Their blades are ordered by grade, ours in binary: generator g, counted from 1, is bit g - 1.
    bits = [sum(1 << (g - 1) for g in blade) for blade in layout.bladeTupList]
    table = layout.gmt  # its axes are left factor, product, right factor
    theirs = {(bits[i], bits[j], bits[k]): int(c) for i, k, j, c in zip(*table.coords, table.data, strict=True) if c}
    ours = algebra.clifford(p, q, r)
    assert {(i, j, k): c for i, j, k, c in ours.terms} == theirs
    compared["table entries"] += ours.dim**2


@pytest.mark.parametrize("levels", range(1, 6))
def test_a_cayley_dickson_algebra_has_the_table_of_the_hypercomplex_package(levels, compared):
    """Both double by the same rule and order components the same way, so nothing is relabeled."""
    numbers = installed("hypercomplex").cayley_dickson_algebra(levels, int)
    ours = algebra.cayley_dickson(levels)
    # Their products are slow, so one product gives a whole row: entry j of the table is decimal digit j of the result.
    digits = [10**j for j in range(ours.dim)]
    for i in range(ours.dim):
        theirs = (numbers.e(i) * numbers(*digits)).coefficients()
        row = ours.multiply({i: 1}, dict(enumerate(digits)))
        assert tuple(row.get(k, 0) for k in range(ours.dim)) == theirs, f"row {i}"
        compared["table entries"] += ours.dim


@pytest.mark.parametrize("signature", [s for n in range(1, 6) for s in signatures(n)], ids=str)
def test_a_clifford_algebra_has_the_table_of_clifra(signature, compared):
    """Both order blades in binary, so nothing is relabeled."""
    clifra = installed("clifra")
    ours = algebra.clifford(*signature)
    basis = torch.eye(ours.dim)
    theirs = import_module("clifra.functional").geometric_product(
        clifra.make_algebra(*signature), basis, basis, pairwise=True
    )
    assert {(*place, int(theirs[tuple(place)])) for place in theirs.nonzero().tolist()} == set(ours.terms)
    compared["table entries"] += ours.dim**2


# Layers ---------------------------------------------------------------------------------------------------------------

#: Reads one of their parameters: its value or its gradient.
Read = Callable[[nn.Parameter], Tensor]


@dataclass(frozen=True)
class Twins:
    """A layer of ours and one of another library."""

    ours: nn.Module
    theirs: nn.Module
    #: Their parameters under the names of ours, as tuples: (component in table order, out, in, ...).
    parameters: Callable[[Read], dict[str, Tensor]]
    #: From our input to theirs, and from their output to ours.
    into: Callable[[Tensor], Tensor]
    back: Callable[[Tensor], Tensor]


def assert_same(twins, x, compared):
    """Check that both have the same output and the same gradients if they have the same parameters."""
    for parameter in twins.theirs.parameters():
        nn.init.normal_(parameter)
    values = twins.parameters(lambda parameter: parameter.detach())
    assert set(values) == {name for name, _ in twins.ours.named_parameters()}
    for name, value in values.items():
        write(twins.ours, name, value)
    their_x = x.clone().requires_grad_()
    expected = twins.back(outputs(twins.theirs(twins.into(their_x)))[0])
    cotangent = torch.randn_like(expected)
    expected.backward(cotangent)
    gradients = twins.parameters(lambda parameter: parameter.grad)
    for lowering in LOWERINGS:
        twins.ours.lowering = lowering
        twins.ours.zero_grad()
        our_x = x.clone().requires_grad_()
        y = outputs(twins.ours(our_x))[0]
        torch.testing.assert_close(y, expected)
        y.backward(cotangent)
        torch.testing.assert_close(our_x.grad, their_x.grad, msg=lambda m: f"gradient of the input: {m}")
        for name, gradient in gradients.items():
            torch.testing.assert_close(read_gradient(twins.ours, name), gradient, msg=lambda m, n=name: f"{n}: {m}")
    compared["weights and biases"] += sum(value.numel() for value in values.values())


def write(layer, name, value):
    if name == "weight":
        layer.weight_tuples = value
    elif name.startswith("weight"):
        layer.get_parameter(name).data.copy_(product.weight_from_tuples(value, layer.algebra))
    else:
        layer.get_parameter(name).data.copy_(from_tuples(value, layer.algebra, dim=0))


def read_gradient(layer, name):
    """The gradient for the tuples of a parameter. Their numbers may differ from those that the layer stores."""
    gradient = layer.get_parameter(name).grad
    if not name.startswith("weight"):
        return tuples(gradient, layer.algebra, dim=0)
    settings = (layer.algebra, getattr(layer, "transposed", False))
    stored, pull_back = torch.func.vjp(
        lambda t: product.weight_from_tuples(t, *settings), product.weight_tuples(torch.zeros_like(gradient), *settings)
    )
    assert stored.shape == gradient.shape
    return pull_back(gradient)[0]


# complextorch: complex tensors ----------------------------------------------------------------------------------------

EXAMPLES = [example for example in TWINS if example.name.startswith(("Linear", "Conv"))]
#: Examples that `complextorch.nn.gauss` computes correctly.
GAUSS_EXAMPLES = [
    example
    for example in EXAMPLES
    if example.name == "Linear"
    or ("padding_mode" not in example.options and len(example.inputs[0]) == int(example.name[-2]) + 2)
]


def assert_same_over_c(example, theirs, parameters, compared):
    (x,) = example.feed(C, F64)
    axis = x.dim() - 1 - (0 if example.name == "Linear" else int(example.name[-2]))
    twins = Twins(
        ours=example.make(C, dtype=F64),
        theirs=theirs,
        parameters=parameters,
        into=lambda x: torch.complex(*tuples(x, C, axis).unbind(axis)),
        back=lambda y: from_tuples(torch.stack([y.real, y.imag], axis), C, axis),
    )
    assert_same(twins, x, compared)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.label)
def test_complextorch_computes_our_layers_over_c(example, compared):
    make = getattr(installed("complextorch").nn, example.name)
    theirs = make(*example.sizes, *example.rest, **example.options, dtype=torch.complex128)
    (wrapped,) = theirs.children()

    def parameters(read):
        values = {name: read(parameter) for name, parameter in wrapped.named_parameters()}
        return {name: torch.stack([value.real, value.imag]) for name, value in values.items()}

    assert_same_over_c(example, theirs, parameters, compared)


@pytest.mark.parametrize("example", GAUSS_EXAMPLES, ids=lambda example: example.label)
def test_complextorch_computes_our_layers_over_c_with_three_products(example, compared):
    make = getattr(installed("complextorch").nn.gauss, example.name)
    theirs = make(*example.sizes, *example.rest, **example.options).double()
    real, imaginary = theirs.children()

    def parameters(read):
        parts = {"weight": (real.weight, imaginary.weight), "bias": (theirs.bias_r, theirs.bias_i)}
        return {name: torch.stack([read(p) for p in pair]) for name, pair in parts.items() if pair[0] is not None}

    assert_same_over_c(example, theirs, parameters, compared)


# cliffordlayers: components last, by grade, and the weight on the right -----------------------------------------------

LAYER_SIGNATURES = [(p, q, r) for n in (1, 2, 3) for p, q, r in signatures(n) if p + q]  # theirs takes no others
over_signatures = pytest.mark.parametrize("signature", LAYER_SIGNATURES, ids=str)
both_ways = pytest.mark.parametrize("exchange", ["opposite", "reversion"])


def assert_same_over_clifford(name, signature, exchange, options, shape, compared):
    """Both layers have 2 tuples in and 3 out; ``shape`` is the shape of the input after its channel axis."""
    p, q, r = signature
    installed("cliffordlayers")
    module = import_module(f"cliffordlayers.nn.modules.clifford{'linear' if name == 'Linear' else 'conv'}")
    theirs = getattr(module, f"Clifford{name}")((1,) * p + (-1,) * q + (0,) * r, 2, 3, **options).double()
    over = algebra.clifford(p, q, r)
    # Their product is x . w. It is w . x in the opposite algebra, or in the same one with every factor reversed.
    signs = torch.ones(over.dim, dtype=F64)
    if exchange == "opposite":
        over = algebra.opposite(over)
    else:
        grades = [k.bit_count() for k in range(over.dim)]
        signs = torch.tensor([(-1.0) ** (grade * (grade - 1) // 2) for grade in grades], dtype=F64)
    num_generators = p + q + r
    blades = [blade for n in range(num_generators + 1) for blade in combinations(range(num_generators), n)]
    by_grade = [sum(1 << g for g in blade) for blade in blades]
    in_binary = [by_grade.index(k) for k in range(over.dim)]

    def signed(t, axis):
        return t * signs.view(-1, *[1] * (t.dim() - 1 - axis))

    def parameters(read):
        parts = theirs.weight  # one parameter, or a list of one for each component
        found = {"weight": read(parts) if isinstance(parts, Tensor) else torch.stack([read(part) for part in parts])}
        if theirs.bias is not None:
            found["bias"] = read(theirs.bias)
        return {name: signed(value[in_binary], 0) for name, value in found.items()}

    twins = Twins(
        ours=getattr(an.nn, name)(2 * over.dim, 3 * over.dim, **options, dtype=F64, algebra=over),
        theirs=theirs,
        parameters=parameters,
        into=lambda x: signed(tuples(x, over, 1), 1)[:, by_grade].movedim(1, -1),
        back=lambda y: from_tuples(signed(y.movedim(-1, 1)[:, in_binary], 1), over, 1),
    )
    assert_same(twins, torch.randn(2, 2 * over.dim, *shape, dtype=F64), compared)


@both_ways
@over_signatures
def test_cliffordlayers_computes_our_linear_layer_over_clifford_algebras(signature, exchange, compared):
    assert_same_over_clifford("Linear", signature, exchange, {}, (), compared)


@both_ways
@over_signatures
@pytest.mark.parametrize("options", [{"stride": 2, "padding": 1}, {"dilation": 2, "bias": False}], ids=str)
def test_cliffordlayers_computes_our_convolutions_over_clifford_algebras(signature, exchange, options, compared):
    num_axes = sum(signature)  # theirs has as many axes as generators
    options = {"kernel_size": 3, **options}
    assert_same_over_clifford(f"Conv{num_axes}d", signature, exchange, options, (6, 5, 5)[:num_axes], compared)


# clifra: components last, in our order --------------------------------------------------------------------------------


@pytest.mark.parametrize("signature", [(2, 0), (3, 0), (1, 3), (4, 1)], ids=str)
def test_a_linear_layer_made_with_clifra_s_product_is_ours(signature, compared):
    installed("clifra")
    over = algebra.clifford(*signature)
    theirs = peers.ProductLinear(import_module("clifra.functional").geometric_product, signature, 3).double()
    twins = Twins(
        ours=an.nn.Linear(3 * over.dim, 3 * over.dim, dtype=F64, algebra=over),
        theirs=theirs,
        parameters=lambda read: {"weight": read(theirs.weight).movedim(-1, 0), "bias": read(theirs.bias).T},
        into=lambda x: tuples(x, over, 1).movedim(1, -1),
        back=lambda y: from_tuples(y.movedim(-1, 1), over, 1),
    )
    assert_same(twins, torch.randn(2, 3 * over.dim, dtype=F64), compared)


# SpeechBrain: features last, components as ours -----------------------------------------------------------------------

FAMILIES = {C: ("complex_networks.c_", "C"), H: ("quaternion_networks.q_", "Q")}
over_families = pytest.mark.parametrize("over", FAMILIES, ids=str)


@pytest.fixture(scope="module")
def speechbrain():
    """Return a function that finds SpeechBrain's layer types by algebra and name."""
    with speechbrain_importable():
        types = {
            letter + name: getattr(import_module(f"speechbrain.nnet.{folder}{module}"), letter + name)
            for folder, letter in FAMILIES.values()
            for module, name in (("linear", "Linear"), ("CNN", "Conv1d"), ("CNN", "Conv2d"), ("RNN", "RNN"))
        }
    return lambda over, name: types[FAMILIES[over][1] + name]


def speechbrain_parameters(layer, read):
    """The parameters of a linear layer or a convolution."""
    prefixes = ("real", "imag") if hasattr(layer, "real_weight") else "rijk"
    weight = torch.stack([read(getattr(layer, f"{prefix}_weight")) for prefix in prefixes])
    bias = layer.b if hasattr(layer, "b") else layer.bias
    found = {"weight": weight.transpose(1, 2) if weight.dim() == 3 else weight}  # that of a linear layer is (in, out)
    return {**found, "bias": read(bias).unflatten(0, (len(prefixes), -1))} if isinstance(bias, nn.Parameter) else found


@pytest.mark.parametrize(("over", "options"), [
    (C, {}), (C, {"bias": False}), (H, {}), (H, {"bias": False}),
    (H, {"autograd": False}),  # gradients by formulas of its own
], ids=str)  # fmt: skip
@pytest.mark.parametrize("shape", [(7,), (2, 3)], ids=str)
def test_speechbrain_computes_our_linear_layer(over, options, shape, speechbrain, compared):
    x = torch.randn(*shape, 5 * over.dim, dtype=F64)
    theirs = speechbrain(over, "Linear")(3, x.shape, **options).double()
    twins = Twins(
        ours=an.nn.Linear(5 * over.dim, 3 * over.dim, bias=options.get("bias", True), dtype=F64, algebra=over),
        theirs=theirs,
        parameters=lambda read: speechbrain_parameters(theirs, read),
        into=lambda x: x,
        back=lambda y: y,
    )
    assert_same(twins, x, compared)


@over_families
@pytest.mark.parametrize("options", [
    {"padding": "valid", "stride": 2, "padding_mode": "zeros"},
    {"padding": "same", "padding_mode": "zeros"},
    {"padding": "same", "dilation": 2, "padding_mode": "reflect"},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("kernel", [3, (3, 5)], ids=["Conv1d", "Conv2d"])
def test_speechbrain_computes_our_convolutions(over, kernel, options, speechbrain, compared):
    name, shape = ("Conv1d", (9,)) if kernel == 3 else ("Conv2d", (9, 11))
    x = torch.randn(2, 2 * over.dim, *shape, dtype=F64)
    mode = {"padding_mode": options["padding_mode"].replace("zeros", "constant")}
    theirs = speechbrain(over, name)(3, kernel, x.transpose(1, -1).shape, **options | mode).double()
    twins = Twins(
        ours=getattr(an.nn, name)(2 * over.dim, 3 * over.dim, kernel, **options, dtype=F64, algebra=over),
        theirs=theirs,
        parameters=lambda read: speechbrain_parameters(theirs, read),
        into=lambda x: x.transpose(1, -1),
        back=lambda y: y.transpose(1, -1),
    )
    assert_same(twins, x, compared)


@over_families
@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize("options", [{"num_layers": 2}, {"bidirectional": True}], ids=str)
def test_speechbrain_computes_our_recurrent_layer(over, nonlinearity, options, speechbrain, compared):
    options = {"nonlinearity": nonlinearity, **options}
    bias = over is H  # the complex layer never has one
    x = torch.randn(2, 5, 3 * over.dim, dtype=F64)
    theirs = speechbrain(over, "RNN")(4, x.shape, **options).double()
    options |= {"bias": bias, "batch_first": True, "dtype": F64, "algebra": over}
    ours = an.nn.RNN(3 * over.dim, 4 * over.dim, **options)
    if ours.bidirectional:  # theirs has one set of parameters for both directions
        for name, parameter in list(ours.named_parameters()):
            if not name.endswith("_reverse"):
                setattr(ours, f"{name}_reverse", parameter)

    def parameters(read):
        return {
            f"{name}_{which}_l{n}": value
            for n, layer in enumerate(theirs.rnn)
            for which, linear in (("ih", layer.w), ("hh", layer.u))
            for name, value in speechbrain_parameters(linear, read).items()
        }

    def back(y):
        """Convert their output, where each direction has its components, to ours, where each component has both."""
        return from_tuples(y.unflatten(-1, (ours.num_directions, over.dim, -1)).transpose(-3, -2).flatten(-2), over)

    assert_same(Twins(ours, theirs, parameters, into=lambda x: x, back=back), x, compared)


# Benchmarks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", peers.PEERS, ids=lambda peer: f"{peer.name} {peer.op} {peer.algebra}")
def test_a_layer_that_is_timed_computes_ours(peer):
    num_axes = {"linear": 0, "conv2d": 2, "conv3d": 3}[peer.op]
    with speechbrain_importable() if peer.package == "speechbrain" else nullcontext():
        installed(peer.package)
        peers.check_function(peer, algebra.get(peer.algebra), num_axes)


def test_a_peer_that_fails_while_it_is_imported_is_missing_from_benchmarks(tmp_path, monkeypatch):
    """SpeechBrain fails like this if torch and torchaudio have different CUDA versions."""
    (tmp_path / "broken_peer.py").write_text("raise RuntimeError('compiled with different CUDA versions')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(peers, "PACKAGES", ("broken_peer",))
    monkeypatch.setattr(peers, "PEERS", (replace(peers.PEERS[0], package="broken_peer"),))
    assert peers.missing() == ["broken_peer"]
