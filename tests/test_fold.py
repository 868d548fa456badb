"""Batch norms are folded into the layers before them, and the weights stay in the algebra."""

import io
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

import algebranets as an
from algebranets import nn as ann
from algebranets.algebra import DUAL, M2R, M3R, C, H, R, diagonal
from algebranets.conversion import fold
from algebranets.conversion.folding import bound_components
from algebranets.conversion.parts import parted
from algebranets.conversion.running import Call, largest_error
from algebranets.conversion.scaled import SCALED, Scaled
from algebranets.pruning import Pruner
from conftest import KINDS


def trained(model):
    """Give batch norms the statistics and factors of a trained model, and biases other values than zero."""
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            if module.running_mean is not None:
                nn.init.normal_(module.running_mean)
                nn.init.uniform_(module.running_var, 0.5, 2)
            if module.weight is not None:
                nn.init.normal_(module.weight)
                nn.init.normal_(module.bias)
        elif getattr(module, "bias", None) is not None:
            nn.init.normal_(module.bias)
    return model.double()


def norms(model):
    return [name for name, module in model.named_modules() if isinstance(module, _BatchNorm)]


def num_numbers(model):
    return sum(tensor.numel() for tensor in model.state_dict().values())


def checked(model, *inputs):
    """Fold a model, and check that it computes the same."""
    folded = fold(model, *inputs)
    assert largest_error(Call(inputs).run(folded), Call(inputs).run(model)) < 1e-12
    assert not any(module.training for module in folded.modules())
    return folded


LAYERS = {
    "Linear": (lambda i, o, a: ann.Linear(i, o, algebra=a), (7,), nn.BatchNorm1d),
    "Conv1d": (lambda i, o, a: ann.Conv1d(i, o, 3, bias=False, algebra=a), (5,), nn.BatchNorm1d),
    "Conv2d": (lambda i, o, a: ann.Conv2d(i, o, 3, groups=2, algebra=a), (5, 4), nn.BatchNorm2d),
    "Conv3d": (lambda i, o, a: ann.Conv3d(i, o, 2, algebra=a), (3, 4, 2), nn.BatchNorm3d),
    "ConvTranspose1d": (lambda i, o, a: ann.ConvTranspose1d(i, o, 2, algebra=a), (5,), nn.BatchNorm1d),
    "ConvTranspose2d": (lambda i, o, a: ann.ConvTranspose2d(i, o, 2, groups=2, algebra=a), (5, 4), nn.BatchNorm2d),
    "ConvTranspose3d": (lambda i, o, a: ann.ConvTranspose3d(i, o, 2, algebra=a), (3, 4, 2), nn.BatchNorm3d),
}


def pair(name, algebra):
    make, size, norm = LAYERS[name]
    inp, out = 4 * algebra.dim, 6 * algebra.dim
    shape = (7, inp) if name == "Linear" else (2, inp, *size)
    return trained(nn.Sequential(make(inp, out, algebra), norm(out), nn.ReLU())), torch.randn(shape).double()


@pytest.mark.parametrize("algebra", KINDS, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_a_folded_layer_computes_the_same_with_a_compact_weight(name, algebra):
    model, x = pair(name, algebra)
    folded = checked(model, x)
    assert type(folded[1]) is nn.Identity
    assert folded[0].weight.shape == model[0].weight.shape
    assert num_numbers(folded) < num_numbers(model)
    assert isinstance(folded[0], Scaled) == bool(bound_components(algebra))
    assert type(model[1]) is not nn.Identity  # the model itself stays as it is


@pytest.mark.parametrize("algebra", [C, H, M2R, M3R, DUAL], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_equal_factors_of_a_tuples_components_go_into_the_weight(name, algebra):
    model, x = pair(name, algebra)
    for vector in (model[1].weight.data, model[1].running_var):
        vector.view(algebra.dim, -1)[:] = vector.view(algebra.dim, -1)[0].clone()
    folded = checked(model, x)
    assert type(folded[0]) is type(model[0])
    assert set(folded[0].state_dict()) <= {"weight", "bias", "algebra_id"}


def test_factors_of_the_rows_of_a_matrix_go_into_the_weight_and_others_do_not():
    model, x = pair("Conv2d", M2R)
    model[1].running_var.fill_(1)
    rows, columns = torch.tensor([2.0, 2.0, 3.0, 3.0]), torch.tensor([2.0, 3.0, 2.0, 3.0])
    for factors, goes in ((rows, True), (columns, False)):
        tuples = factors.double()[:, None].expand(4, 6)
        model[1].weight.data = an.from_tuples(tuples, M2R, dim=0)
        assert isinstance(checked(model, x)[0], Scaled) != goes


@pytest.mark.parametrize("algebra", [R, diagonal(3)], ids=str)
def test_components_that_never_mix_need_no_scale(algebra):
    model, x = pair("Conv2d", algebra)
    assert type(checked(model, x)[0]) is ann.Conv2d


@pytest.mark.parametrize(
    ("name", "options", "num_left"),
    [
        ("resnet18", {"width": 0.125, "num_classes": 5}, 0),
        ("mobilenet_v1", {"width": 0.125, "num_classes": 5}, 0),
        # Pre-activation: norm1 of each block reads a sum or a concatenation, and the last norm as well.
        ("cifar_resnet", {"width": 0.25, "num_blocks": 1}, 4),
    ],
)
def test_our_models_are_folded_and_norms_that_follow_no_layer_stay(name, options, num_left):
    model = trained(an.models.create(name, algebra=M2R, **options))
    folded = checked(model, torch.randn(2, 3, 32, 32, dtype=torch.float64))
    assert len(norms(folded)) == num_left
    assert num_numbers(folded) < num_numbers(model)


def test_layers_of_torch_and_layers_with_parts_are_folded_too():
    real = trained(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), ann.Conv2d(8, 8, 3, algebra=H)))
    folded = checked(real, torch.randn(2, 3, 7, 7, dtype=torch.float64))
    assert norms(folded) == []
    for vector in (False, True):
        layer = parted(ann.Conv2d(8, 16, 3, algebra=C), (4, 4), (4, 12))
        model = trained(nn.Sequential(layer, nn.BatchNorm2d(16)))
        if not vector:
            nn.init.constant_(model[1].weight, 0.7)
            nn.init.constant_(model[1].running_var, 0.7)
        folded = checked(model, torch.randn(2, 8, 7, 7, dtype=torch.float64))
        assert isinstance(folded[0], Scaled) == vector
        assert folded[0].out_parts == (4, 12)


def test_a_pruned_layer_keeps_its_zeros():
    model = trained(nn.Sequential(ann.Linear(64, 64, algebra=H), nn.BatchNorm1d(64), ann.Linear(64, 4, algebra=H)))
    Pruner(model, target=0.5).step()
    folded = checked(model, torch.randn(5, 64, dtype=torch.float64))
    assert (folded[0].weight == 0).double().mean() >= 0.5


class Shared(nn.Module):
    """A layer whose output is read by a batch norm and by something else, or that is used in another unusual way."""

    def __init__(self, how):
        super().__init__()
        self.layer, self.norm, self.how = ann.Linear(8, 8, algebra=H), nn.BatchNorm1d(8), how
        if how == "no statistics":
            self.norm = nn.BatchNorm1d(8, track_running_stats=False)
        if how == "hook":
            self.layer.register_forward_hook(lambda *_: None)
        if how == "other axis":
            self.norm = nn.BatchNorm1d(5)

    def forward(self, x):
        if self.how == "other axis":
            return self.norm(self.layer(x[:, None].expand(-1, 5, -1)))
        if self.how == "activation":
            return self.norm(self.layer(x, activation="relu"))
        y = self.layer(x)
        if self.how == "read":
            return self.norm(y) + y
        if self.how == "returned":
            return self.norm(y), y
        if self.how == "twice":
            return self.norm(self.layer(y))
        if self.how == "copied":
            return self.norm(y + 0)
        return self.norm(y)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("read", "something else reads the output of layer"),
        ("returned", "something else reads the output of layer"),
        ("twice", "is called more than once"),
        ("copied", "follows no linear layer or convolution"),
        ("activation", "is called with further arguments"),
        ("no statistics", "has no running statistics"),
        ("hook", "has hooks"),
        ("other axis", "not on axis 1"),
    ],
)
def test_a_norm_that_cannot_be_folded_is_named_with_the_reason(how, reason):
    with pytest.raises(ValueError, match=f"no batch norm of Shared could be folded .*norm: .*{reason}"):
        fold(Shared(how), torch.randn(7, 8))


def test_a_model_without_batch_norm_is_an_error():
    with pytest.raises(ValueError, match="has no batch norm"):
        fold(ann.Linear(8, 8, algebra=H), torch.randn(7, 8))


def test_nothing_takes_a_folded_layer_for_one_without_a_scale():
    sizes = ((64, 64), (64, 64), (64, 4))
    first, *others = (ann.Linear(*size, algebra=H) for size in sizes)
    model, x = trained(nn.Sequential(first, nn.BatchNorm1d(64), *others)), torch.randn(5, 64, dtype=torch.float64)
    Pruner(model, target=0.9).finish()
    folded = checked(model, x)
    assert isinstance(folded[0], Scaled)
    small = an.sparse(folded)
    assert type(small[0]) is type(folded[0])
    assert type(small[2]) is ann.SparseLinear
    assert largest_error(Call((x,)).run(small), Call((x,)).run(model)) < 1e-12
    lift, conv = ann.Lift2d(3, kernel_size=1, algebra=H), ann.Conv2d(12, 8, 3, algebra=H)
    assert lift._merges_with(conv)
    folded = checked(trained(nn.Sequential(conv, nn.BatchNorm2d(8))), torch.randn(1, 12, 5, 5, dtype=torch.float64))
    assert not lift._merges_with(folded[0])


def test_folded_layers_can_be_saved_and_printed():
    model, x = pair("Conv2d", H)
    folded, file = checked(model, x), io.BytesIO()
    words = "Conv2d(16, 24, kernel_size=(3, 3), stride=(1, 1), groups=2, bias=False, algebra=H, scaled)"
    assert str(folded[0]) == words
    torch.save(folded, file)
    file.seek(0)
    assert largest_error(Call((x,)).run(torch.load(file, weights_only=False)), Call((x,)).run(model)) < 1e-12
    assert len(SCALED) == 14


@pytest.mark.parametrize("groups", [2, 8])
def test_a_transposed_convolution_of_torch_with_groups_is_folded(groups):
    model = trained(nn.Sequential(nn.ConvTranspose2d(8, 16, 3, groups=groups), nn.BatchNorm2d(16)))
    x = torch.randn(2, 8, 3, 3).double()
    folded = fold(model, x)
    assert norms(folded) == []
    assert largest_error(Call((x,)).run(folded), Call((x,)).run(model)) < 1e-12


@dataclass
class Features:
    inner: torch.Tensor


class GivesFeatures(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)

    def forward(self, x):
        y = self.conv(x)
        return self.norm(y), Features(y)


def test_an_output_inside_a_dataclass_is_not_folded_away():
    model = trained(GivesFeatures())
    with pytest.raises(ValueError, match="something else reads the output of conv"):
        fold(model, torch.randn(2, 8, 3, 3).double())
    assert largest_error(Features(torch.ones(2)), Features(torch.tensor([1.0, 2.0]))) == 0.5
