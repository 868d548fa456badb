"""Claims of docs/guides/tools.md about tools that look at the class of a layer or at single numbers of its weight."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import algebranets as an
from algebranets.algebra import C, H
from algebranets.pruning import Pruner


def pair():
    """A layer over H before one of torch's."""
    return nn.Sequential(an.nn.Linear(16, 16, algebra=H), nn.Linear(16, 16))


@pytest.fixture(autouse=True)
def _deprecations_are_ignored():
    """Torch's older quantization says that it will be removed."""
    with warnings.catch_warnings(action="ignore"):
        yield


def test_dynamic_quantization_skips_our_layers(monkeypatch):
    monkeypatch.setattr(torch.backends.quantized, "engine", "qnnpack")
    quantized = torch.ao.quantization.quantize_dynamic(pair(), {nn.Linear}, dtype=torch.qint8)
    assert type(quantized[0]) is an.nn.Linear
    assert quantized[0].weight.dtype == torch.float32
    assert type(quantized[1]) is not nn.Linear


def test_static_quantization_leaves_our_layers_in_float32(monkeypatch):
    monkeypatch.setattr(torch.backends.quantized, "engine", "qnnpack")
    model = pair().eval()
    model.qconfig = torch.ao.quantization.get_default_qconfig("qnnpack")
    prepared = torch.ao.quantization.prepare(model)
    prepared(torch.randn(4, 16))
    converted = torch.ao.quantization.convert(prepared)
    assert type(converted[0]) is an.nn.Linear
    assert converted[0].weight.dtype == torch.float32
    assert type(converted[1]) is not nn.Linear


def test_torchs_pruning_zeroes_single_numbers_and_ours_refuses_its_hooks():
    layer = prune.l1_unstructured(an.nn.Linear(64, 64, algebra=H), "weight", 0.5)
    zero = layer.weight_tuples == 0
    assert zero.float().mean() == 0.5
    assert zero.all(0).float().mean() < 0.2
    with pytest.raises(ValueError, match="weight must be a parameter to be pruned, but a hook computes it"):
        Pruner(layer, 0.5, layers="*")


@pytest.mark.parametrize("algebra", [C, H], ids=str)
def test_torchs_fusion_of_a_batch_norm_is_wrong_without_an_error(algebra):
    """For this reason, algebranets.nn.utils.fuse_linear_bn_eval raises an error: see test_reparametrizations.py."""
    linear, norm, x = an.nn.Linear(8, 8, algebra=algebra), nn.BatchNorm1d(8), torch.randn(20, 8)
    nn.init.normal_(norm.weight)
    norm(linear(x)), linear.eval(), norm.eval()
    fused = nn.utils.fuse_linear_bn_eval(copy.deepcopy(linear), norm)
    assert (fused(x) - norm(linear(x))).abs().max() > 0.01


def test_torchs_kaiming_makes_weights_over_h_twice_as_large():
    weight = an.nn.Linear(512, 512, algebra=H).weight
    theirs = nn.init.kaiming_normal_(weight, nonlinearity="relu").std().item()
    ours = an.nn.init.kaiming_normal_(weight, nonlinearity="relu", algebra=H).std().item()
    assert theirs == pytest.approx(2 * ours, rel=0.02)


def test_a_parametrization_gets_the_stored_weight_and_an_algebra_weight_converts_it():
    layer = an.nn.Linear(8, 12, algebra=H)
    (weight,) = layer.algebra_weights()

    class FirstComponent(nn.Module):
        def forward(self, stored):
            tuples = weight.tuples(stored).clone()
            tuples[1:] = 0
            return weight.from_tuples(tuples)

    nn.utils.parametrize.register_parametrization(layer, "weight", FirstComponent())
    assert layer.weight_tuples[0].all()
    assert not layer.weight_tuples[1:].any()


def test_tools_that_ask_for_torchs_class_do_not_find_ours():
    layer = an.over("H").Linear(8, 8)
    assert not isinstance(layer, nn.Linear)
    assert isinstance(layer, an.over("H").Linear)
    with pytest.raises(torch.fx.proxy.TraceError):
        torch.fx.symbolic_trace(pair())
