"""An AlgebraNet becomes a plain torch model that gives the same numbers and loads without algebranets."""

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn

import algebranets as an
from algebranets import nn as ann
from algebranets.algebra import M2R, M3R, C, H, R
from algebranets.conversion import convert, fold, to_real
from algebranets.conversion.parts import parted
from algebranets.conversion.real import TWINS, traces
from algebranets.conversion.running import Call, largest_error
from algebranets.pruning import Pruner
from alone import run_alone
from conftest import KINDS, thinned
from zoo import LAYERS, ONE_EACH

#: Layers of algebranets.nn without a plain torch version of their own. They become a graph of torch's functions.
GRAPHS = {"RelativeAttention", "Whitening3d"}


def random_state(model):
    """Give every parameter and statistic of a model a random value."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point() and "covariance" not in name:
            nn.init.uniform_(buffer, 0.5, 2)
    return model.double()


def errors(model, inputs, **options):
    """The largest errors of the plain model: as made, and after it is saved and loaded."""
    made = to_real(model, *inputs, **options)
    assert traces(made) == []
    return made, largest_error(Call(inputs).run(made), Call(inputs).run(model))


def over_few(examples):
    often, rare = [(e, M2R) for e in examples], [(e, H) for e in examples]
    return [
        *(pytest.param(e, a, id=f"{e.label}-{a.name}") for e, a in often),
        *(pytest.param(e, a, id=f"{e.label}-{a.name}", marks=pytest.mark.slow) for e, a in rare),
    ]


@pytest.mark.parametrize(("example", "algebra"), over_few(LAYERS))
def test_every_layer_becomes_plain_torch_with_the_same_outputs(example, algebra):
    layer = random_state(example.make(algebra))
    inputs = tuple(example.feed(algebra, torch.float64))
    made, error = errors(layer.eval(), inputs)
    assert error < 1e-10
    is_graph = example.name in GRAPHS
    assert is_graph == (type(layer) not in TWINS or example.name == "Whitening3d")
    if example.name in vars(nn) and "roups" not in example.label and not example.options.get("bidirectional"):
        assert type(made).__name__ == example.name


def test_every_layer_of_the_library_has_a_plain_version_or_is_known_to_need_a_graph():
    layers = {n for n in ann.__all__ if isinstance(getattr(ann, n), type) and issubclass(getattr(ann, n), nn.Module)}
    layers = {name for name in layers if getattr(ann, name).__module__.startswith("algebranets")}
    lazy = {name for name in layers if name.startswith("Lazy")}
    assert {name for name in layers - lazy - {"Layer"} if getattr(ann, name) not in TWINS} == {"RelativeAttention"}
    assert {example.name for example in ONE_EACH} <= layers


#: Deeper networks of the same layers are left out.
MODELS = {
    "resnet18": {"width": 0.125, "num_classes": 5},
    "resnet50": {"width": 0.125, "num_classes": 5},
    "mobilenet_v1": {"width": 0.125, "num_classes": 5},
    "cifar_resnet": {"width": 0.25, "num_blocks": 1},
    "transformer_xl": {"num_layers": 2, "d_model": 72, "num_heads": 2, "ff_size": 36, "window": 8},
    "gru_lm": {"hidden_size": 36, "num_readouts": 1},
}
#: Each model over one or two algebras, of which the first of two is tested often.
OVER = {
    "resnet18": (M2R, C), "mobilenet_v1": (H, M2R), "cifar_resnet": (H, C), "transformer_xl": (M2R, H),
    "gru_lm": (C, M2R), "resnet50": (H,),
}  # fmt: skip


def model_inputs(name, batch=2):
    if name in ("transformer_xl", "gru_lm"):
        return (torch.randint(256, (batch, 5)),)
    return (torch.randn(batch, 3, 32, 32, dtype=torch.float64),)


@pytest.mark.parametrize(
    ("name", "algebra"),
    thinned(((n, a) for n in MODELS for a in OVER[n]), lambda n, a: len(OVER[n]) > 1 and a == OVER[n][0]),
    ids=str,
)
def test_every_model_becomes_plain_torch_for_any_batch(name, algebra):
    model = random_state(an.models.create(name, algebra=algebra, **MODELS[name]))
    for parameter in model.parameters():
        parameter.data *= 0.3
    made, error = errors(model, model_inputs(name))
    assert error < 1e-10
    other = model_inputs(name, batch=3)
    assert largest_error(Call(other).run(made), Call(other).run(model)) < 1e-10


def test_the_list_of_models_is_complete():
    assert {*MODELS, "resnet34", "resnet101"} == set(an.models.MODELS)


RUN_ALONE = """
for name in sys.argv[1:]:
    model, inputs, expected = torch.load(name, weights_only=False)
    with torch.no_grad():
        result = model.eval()(*inputs)
    result = result[0] if isinstance(result, tuple) else result
    error = ((result - expected).abs().max() / expected.abs().max()).item()
    assert error < 1e-10, (name, error)
assert "algebranets" not in sys.modules
print("all equal")
"""


def test_a_process_without_algebranets_loads_and_runs_plain_models(tmp_path):
    nn_ = an.over("M2R")
    mlp = nn.Sequential(ann.Lift(3, algebra="M2R"), nn_.Linear(12, 8), nn.ReLU(), nn_.GroupNorm(1, 8), nn_.Linear(8, 8))
    conv = nn.Sequential(nn_.Conv2d(8, 8, 3, groups=2), nn_.TupleNorm(dim=1))
    cases = {
        "mlp": (mlp, (torch.randn(2, 3, dtype=torch.float64),)),
        "conv": (conv, (torch.randn(2, 8, 5, 5, dtype=torch.float64),)),
        "gru": (nn_.GRU(8, 8, bidirectional=True), (torch.randn(5, 2, 8, dtype=torch.float64),)),
    }
    for name in ("cifar_resnet", "transformer_xl", "gru_lm"):
        cases[name] = an.models.create(name, algebra="M2R", **MODELS[name]), model_inputs(name)
    paths = []
    for name, (model, inputs) in cases.items():
        expected = Call(inputs).run(model.double())
        expected = expected[0] if isinstance(expected, tuple) else expected
        paths.append(tmp_path / f"{name}.pt")
        torch.save((to_real(model, *inputs), inputs, expected), paths[-1])
    assert run_alone(RUN_ALONE, *paths) == "all equal\n"


class Net(nn.Module):
    """A user's model that calls functions of ours."""

    def __init__(self, algebra):
        super().__init__()
        self.algebra = algebra
        self.first, self.second = (ann.Linear(12, 12, algebra=algebra) for _ in range(2))

    def forward(self, x):
        return an.cat([self.first(x), self.second(x)], dim=-1, algebra=self.algebra)


class Plain(nn.Module):
    """A user's model that has an algebra but calls no function of ours."""

    def __init__(self, algebra):
        super().__init__()
        self.algebra = algebra
        self.layer, self.note = ann.Linear(12, 12, algebra=algebra), "kept"

    def forward(self, x):
        return self.layer(x).relu()


def test_a_model_keeps_its_class_unless_its_own_code_calls_ours():
    x = torch.randn(3, 12, dtype=torch.float64)
    plain, error = errors(Plain(H).double(), (x,))
    assert type(plain) is Plain
    assert error < 1e-12
    assert plain.note == "kept"
    assert not hasattr(plain, "algebra")
    net, error = errors(Net(H).double(), (x,))
    assert isinstance(net, torch.fx.GraphModule)
    assert error < 1e-12


class Tied(nn.Module):
    def __init__(self, algebra):
        super().__init__()
        size = 3 * algebra.dim
        self.embedding = ann.Embedding(5, size, algebra=algebra)
        self.one, self.two = (ann.Linear(size, size, algebra=algebra) for _ in range(2))
        self.two.weight = self.one.weight
        self.readout = nn.Linear(size, 5)
        self.readout.weight = self.embedding.weight

    def forward(self, tokens):
        return self.readout(self.two(self.one(self.embedding(tokens))))


@pytest.mark.parametrize("algebra", KINDS, ids=str)
def test_weights_that_are_shared_stay_shared(algebra):
    made, error = errors(Tied(algebra).double(), (torch.tensor([0, 3, 4]),))
    assert error < 1e-10
    assert made.readout.weight is made.embedding.weight
    assert made.one.weight is made.two.weight


@pytest.mark.parametrize("algebra", [H, M2R], ids=str)
def test_parametrized_weights_become_ordinary_ones(algebra):
    size = 4 * algebra.dim
    model = nn.Sequential(ann.Linear(size, size, algebra=algebra), nn.ReLU(), ann.Linear(size, size, algebra=algebra))
    Pruner(model, target=0.5).step()
    ann.utils.parametrizations.spectral_norm(model[2])
    x = torch.randn(3, size, dtype=torch.float64)
    made, error = errors(model.double(), (x,))
    assert error < 1e-10
    assert not hasattr(made[0], "parametrizations")
    assert (made[0].weight == 0).float().mean() >= 0.5


@pytest.mark.parametrize("algebra", [C, H, M2R, M3R], ids=str)
def test_layers_with_parts_need_no_copies(algebra):
    size = 2 * algebra.dim
    cases = {
        ann.Linear(3 * size, 4 * size, algebra=algebra): (5, 3 * size),
        ann.Conv2d(3 * size, 4 * size, 3, algebra=algebra): (2, 3 * size, 5, 4),
        ann.ConvTranspose1d(3 * size, 4 * size, 3, algebra=algebra): (2, 3 * size, 5),
    }
    for layer, shape in cases.items():
        with_parts = random_state(parted(layer, (size, 2 * size), (3 * size, size)))
        made, error = errors(with_parts, (torch.randn(shape, dtype=torch.float64),))
        assert error < 1e-12
        assert type(made) is getattr(nn, type(made).__name__)
    others = {
        ann.Conv1d(3 * size, 4 * size, 3, groups=2, algebra=algebra): (2, 3 * size, 5),
        ann.GRU(3 * size, 4 * size, bidirectional=False, algebra=algebra): (5, 2, 3 * size),
        ann.LSTM(3 * size, 2 * size, bidirectional=True, algebra=algebra): (5, 2, 3 * size),
    }
    for layer, shape in others.items():
        with_parts = random_state(parted(layer, (size, 2 * size), (3 * size, size)))
        assert errors(with_parts, (torch.randn(shape, dtype=torch.float64),))[1] < 1e-12
    attention = ann.MultiheadAttention(4 * size, 2, algebra=algebra)
    x = torch.randn(5, 2, 4 * size, dtype=torch.float64)
    assert errors(random_state(parted(attention, (size, 3 * size), (2 * size, 2 * size))), (x, x, x))[1] < 1e-12
    norm = ann.GroupNorm(2, 4 * size, algebra=algebra)
    x = torch.randn(5, 4 * size, 3, dtype=torch.float64)
    assert errors(random_state(parted(norm, (size, 3 * size), (size, 3 * size))), (x,))[1] < 1e-12


def test_a_folded_model_and_a_sparse_one_become_plain_torch():
    x = torch.randn(2, 8, 5, 5, dtype=torch.float64)
    model = nn.Sequential(ann.Conv2d(8, 8, 3, algebra=H), nn.BatchNorm2d(8), ann.Conv2d(8, 8, 1, algebra=H))
    folded = fold(random_state(model), x)
    made, error = errors(folded, (x,))
    assert error < 1e-12
    assert type(made[0]) is nn.Conv2d
    for groups in (1, 2):
        layer = parted(ann.Conv2d(8, 16, 3, groups=groups, algebra=C), (4, 4), (4, 12))
        folded = fold(random_state(nn.Sequential(layer, nn.BatchNorm2d(16))), x)
        assert errors(folded, (x,))[1] < 1e-12
    dense = nn.Sequential(ann.Conv2d(64, 64, 1, algebra=H), ann.Conv2d(64, 64, 1, algebra=H))
    Pruner(dense, target=0.9).finish()
    sparse = an.sparse(dense.double())
    made, error = errors(sparse, (torch.randn(2, 64, 3, 3, dtype=torch.float64),))
    assert error < 1e-12
    assert [type(layer) for layer in made] == [nn.Conv2d, nn.Conv2d]


def test_a_converted_model_keeps_its_class_and_trains_like_the_algebranet_at_first():
    timm = pytest.importorskip("timm")
    model = convert(timm.create_model("test_resnet", num_classes=3), "M2R", inputs=torch.randn(1, 3, 32, 32))
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    made, error = errors(model.double(), (x,))
    assert error < 1e-10
    assert type(made) is type(model)
    model.train()
    made.train()
    assert largest_error(made(x), model(x)) < 1e-8
    assert not hasattr(made, "conversion")


def test_dropout_and_batch_norm_of_a_graph_follow_its_mode():
    model = an.models.create("transformer_xl", algebra="C", dropout=0.5, **MODELS["transformer_xl"]).eval()
    made = to_real(model, *model_inputs("transformer_xl"))
    tokens = model_inputs("transformer_xl")
    assert not made.training
    assert torch.equal(made(*tokens)[0], made(*tokens)[0])
    made.train()
    assert not torch.equal(made(*tokens)[0], made(*tokens)[0])


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match="plain torch model already"):
        to_real(nn.Linear(3, 3))
    with pytest.raises(ValueError, match=r"0.weight has no numbers yet: run the model once"):
        to_real(nn.Sequential(ann.LazyLinear(8, algebra=H)))
    hooked = ann.Linear(8, 8, algebra=H)
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="has hooks"):
        to_real(hooked, torch.randn(1, 8))
    model = an.models.create("transformer_xl", algebra="C", **MODELS["transformer_xl"])
    with pytest.raises(ValueError, match=r"TransformerXL cannot be made plain torch: .*KeyValueCache"):
        to_real(model, *model.example_inputs())  # they hold a cache, whose class is ours


def test_a_real_layer_over_r_is_torchs_own():
    layer = ann.Linear(5, 3, algebra=R)
    made = to_real(layer, torch.randn(1, 5))
    assert type(made) is nn.Linear
    assert torch.equal(made.weight, layer.weight)


def test_weights_of_a_plain_model_become_int8_with_torchao():
    quantization = pytest.importorskip("torchao.quantization")
    torch.manual_seed(0)
    nn_ = an.over("M2R")
    model = nn.Sequential(nn_.Linear(64, 128), nn.ReLU(), nn_.Linear(128, 32))
    x = torch.randn(7, 64)
    made = to_real(model, x)
    quantization.quantize_(made, quantization.Int8WeightOnlyConfig())
    assert largest_error(made(x), model(x)) < 0.02
    assert made[0].weight.qdata.dtype == torch.int8


class PackedClassifier(nn.Module):
    """A classifier of sequences of different lengths, by the last states of both directions."""

    def __init__(self, kind, algebra):
        super().__init__()
        self.rnn = kind(8, 12, 2, batch_first=True, bidirectional=True, algebra=algebra)
        self.head = ann.Linear(24, 4, algebra=algebra)

    def forward(self, x, lengths):
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        steps, _ = rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.head(steps).sum(1)


@pytest.mark.parametrize("kind", [ann.LSTM, ann.GRU], ids=lambda kind: kind.__name__)
def test_a_layer_with_two_directions_reads_packed_sequences(kind):
    model = random_state(PackedClassifier(kind, H))
    inputs = torch.randn(3, 5, 8).double(), torch.tensor([5, 2, 4])
    made, error = errors(model, inputs)
    assert type(made) is PackedClassifier
    assert error < 1e-12


def test_a_model_without_numbers_is_an_error_that_says_so():
    with pytest.raises(ValueError, match="Linear has no numbers, because it is on the device 'meta'"):
        to_real(ann.Linear(8, 8, algebra=H, device="meta"), torch.randn(2, 8))


def test_inputs_that_the_model_does_not_take_are_an_error_with_the_reason():
    with pytest.raises(ValueError, match=r"Linear does not run on the input \(2, 3\) \(.*\): pass inputs"):
        to_real(ann.Linear(8, 8, algebra=H), torch.randn(2, 3))
