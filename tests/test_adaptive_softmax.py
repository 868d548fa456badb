"""`AdaptiveLogSoftmaxWithLoss`: over R it is torch's, and probabilities sum to 1."""

import copy

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

import algebranets as an
from algebranets import M2R, C, H, R
from algebranets.algebra import CATALOGUE
from conftest import over_kinds

F64 = torch.float64
TARGET = torch.tensor([0, 3, 4, 9, 5, 11, 4])  # classes of the shortlist and of both clusters
CUTOFFS = [4, 9]


def make(algebra, **options):
    return an.nn.AdaptiveLogSoftmaxWithLoss(
        **{"in_features": 5 * algebra.dim, "n_classes": 12, "cutoffs": CUTOFFS, "div_value": 2.0, **options},
        dtype=F64,
        algebra=algebra,
    )


def rows(algebra):
    return torch.randn(7, 5 * algebra.dim, dtype=F64, requires_grad=True)


@pytest.mark.parametrize("options", [{}, {"head_bias": True, "div_value": 1.3}, {"cutoffs": (1,)}], ids=str)
def test_over_r_it_is_torchs(options):
    ours = make(R, **options)
    theirs = nn.AdaptiveLogSoftmaxWithLoss(5, 12, **{"cutoffs": CUTOFFS, "div_value": 2.0, **options}, dtype=F64)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    for name in ("in_features", "n_classes", "cutoffs", "div_value", "head_bias", "shortlist_size", "n_clusters"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.head_size == theirs.head_size
    x = rows(R)
    results = []
    for layer in (ours, theirs):
        output, loss = layer(x, TARGET)
        parameters = dict(layer.named_parameters())
        grads = torch.autograd.grad(loss, [x, *parameters.values()])
        results.append((output, loss, dict(zip(["x", *parameters], grads, strict=True))))
    torch.testing.assert_close(*results)
    torch.testing.assert_close(ours.log_prob(x), theirs.log_prob(x))
    assert torch.equal(ours.predict(x), theirs.predict(x))
    assert type(ours(x, TARGET)) is type(theirs(x, TARGET))
    torch.testing.assert_close(ours(x[0], TARGET[0]), theirs(x[0], TARGET[0]))


@over_kinds
def test_the_outputs_are_the_log_probabilities_of_the_targets(algebra):
    layer, x = make(algebra, head_bias=True), rows(algebra)
    log_prob = layer.log_prob(x)
    torch.testing.assert_close(log_prob.exp().sum(1), torch.ones(7, dtype=F64))
    output, loss = layer(x, TARGET)
    torch.testing.assert_close(output, log_prob[range(7), TARGET])
    torch.testing.assert_close(loss, -output.mean())
    assert torch.equal(layer.predict(x), log_prob.argmax(1))


@pytest.mark.parametrize("algebra", [R, C, H, M2R], ids=str)
def test_gradients_are_those_of_differences(algebra):
    layer = make(algebra, head_bias=True)
    with torch.no_grad():
        layer.head.bias.normal_()
    names, values = zip(*layer.named_parameters(), strict=True)

    def loss(x, *parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x, TARGET)).loss

    assert gradcheck(loss, (rows(algebra), *values), fast_mode=True)  # along random directions


@pytest.mark.parametrize("algebra", CATALOGUE.values(), ids=str)
def test_a_logit_is_the_norm_of_a_tuple(algebra):
    """One cluster with the same weights as a linear layer: its logits are the norms of the layer's tuples."""
    layer, x = make(algebra), rows(algebra)
    linear = an.nn.Linear(5 * algebra.dim, layer.head_size * algebra.dim, bias=False, dtype=F64, algebra=algebra)
    linear.weight_tuples = layer.head.weight_tuples
    y = linear(x)
    norms = an.tuples(y, algebra).norm(dim=-2) if algebra.dim > 1 else y
    torch.testing.assert_close(layer.head(x), norms)


@pytest.mark.parametrize(("algebra", "sizes"), [(R, [10, 5, 2]), (C, [10, 6, 2]), (H, [12, 4, 4]), (M2R, [12, 4, 4])])
def test_the_projections_of_clusters_hold_whole_tuples(algebra, sizes):
    layer = an.nn.AdaptiveLogSoftmaxWithLoss(20, 12, [4, 7, 9], div_value=2.0, algebra=algebra)
    assert [projection.out_features for projection, _ in layer.tail] == sizes


def test_the_account_counts_every_projection():
    layer, x = make(H), rows(H)
    cost = an.account(layer, x, TARGET)
    tuples = 7 * 5 * (4 + 2)  # the head
    tuples += 3 * (5 * 3 + 3 * 5)  # three targets in the first cluster, with 20 // 2 = 10 features: three tuples
    tuples += 2 * (5 * 1 + 1 * 3)
    assert cost.multiplies == tuples * 16
    assert not cost.unknown


def test_sparse_copies_and_state_dicts_compute_the_same():
    layer, x = make(H), rows(H)
    for weight in (layer.head, layer.tail[0][0], layer.tail[0][1]):
        tuples = weight.weight_tuples.detach().clone()
        tuples[:, :, 1:] = 0
        weight.weight_tuples = tuples
    torch.testing.assert_close(an.sparse(layer, at_least=0.5).log_prob(x), layer.log_prob(x))
    other = make(H)
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(other.log_prob(x), layer.log_prob(x))
    with pytest.raises(RuntimeError, match=r"head is over diagonal\(4\), but the state dict holds weights over H"):
        make(an.algebra.get("diagonal(4)")).load_state_dict(layer.state_dict())
    before = copy.deepcopy(layer.state_dict())
    layer.reset_parameters()
    assert all(not torch.equal(before[name], p) for name, p in layer.named_parameters())


def test_it_runs_under_autocast_and_in_half_precision():
    """Torch's own layer does not run under autocast on a CPU, nor on a GPU if its input is in half precision."""
    layer = an.nn.AdaptiveLogSoftmaxWithLoss(20, 12, CUTOFFS, div_value=2.0, algebra=H)
    x = torch.randn(7, 20)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = [layer(given, TARGET) for given in (x, x.bfloat16())]
        assert layer.log_prob(x).dtype == torch.float32
    for output, loss in rough:
        assert output.dtype == loss.dtype == torch.float32
        torch.testing.assert_close(output, layer(x, TARGET).output, atol=0.1, rtol=0.1)
    assert layer.bfloat16().log_prob(x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"in_features": 10}, "in_features is 10, which does not hold whole H tuples"),
        ({"cutoffs": []}, "cutoffs must be whole numbers from 1 to n_classes - 1 = 11, in increasing order"),
        ({"cutoffs": [4, 12]}, "got [4, 12]"),
        ({"cutoffs": [9, 4]}, "got [9, 4]"),
        ({"cutoffs": [4.5]}, "cutoffs must be a whole number; got 4.5"),
        ({"n_classes": 1.5}, "n_classes must be a whole number"),
        ({"div_value": 0}, "div_value must be a positive number"),
    ],
    ids=str,
)
def test_unsound_arguments_are_explained(options, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        make(H, **options)
    assert message in str(error.value)


def test_without_an_algebra_the_error_says_what_to_write():
    with pytest.raises(ValueError, match="AdaptiveLogSoftmaxWithLoss needs an algebra"):
        an.nn.AdaptiveLogSoftmaxWithLoss(8, 12, CUTOFFS)
