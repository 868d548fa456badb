"""Pruning: hand-computed schedules and masks, what is spared, and runs that end sparse."""

import pytest
import torch
from safetensors.torch import load_file

import algebranets as an
from algebranets import pruning, train
from algebranets.pruning import Pruner, prunable
from algebranets.train import Hardware
from conftest import ALGEBRAS
from test_training import small


def linear(algebra, *weights):
    """One layer between two that are spared, its tuples given in table order: (component, out, in)."""
    layers = [an.nn.Linear(algebra.dim, algebra.dim, algebra=algebra, bias=False) for _ in range(2)]
    layers[0].weight_tuples = torch.tensor(weights).reshape(algebra.dim, 1, 1)
    return an.nn.Sequential(*layers)


def test_sparsity_follows_the_cubic_of_zhu_and_gupta():
    """At half way between begin and end it is 1 - (1/2)^3 of the target."""
    pruner = Pruner(an.models.create("cifar_resnet", algebra="C", num_blocks=1), target=0.8, steps=1000)
    values = {0: 0, 200: 0, 350: 0.8 * (1 - 0.75**3), 500: 0.7, 650: 0.8 * (1 - 0.25**3), 800: 0.8, 1000: 0.8}
    assert [pruner.due(step) for step in values] == pytest.approx(list(values.values()))


def test_it_prunes_only_when_it_is_time():
    pruner = Pruner(an.models.create("cifar_resnet", algebra="C", num_blocks=1), target=0.5, steps=100, every=10)
    seen = []
    pruner.prune = seen.append
    for _ in range(100):
        pruner.step()
    assert len(seen) == 7  # behind steps 30, 40, ..., 80, and once more
    assert seen[-2:] == pytest.approx([0.5, 0.5])
    assert seen == sorted(seen)


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
def test_the_smallest_tuples_go_whole_and_no_others(algebra):
    torch.manual_seed(0)
    model = an.nn.Sequential(*(an.nn.Conv2d(4 * algebra.dim, 3 * algebra.dim, 3, algebra=algebra) for _ in range(2)))
    layer = model[1]
    before = layer.weight_tuples.clone()
    pruner = Pruner(model, target=0.5, steps=100, layers=[layer])
    pruner.prune(0.25)
    after, size = layer.weight_tuples, before.norm(dim=0)
    gone = (after == 0).all(0)
    assert gone.sum() == round(0.25 * size.numel())
    assert size[gone].max() <= size[~gone].min()
    torch.testing.assert_close(after[:, ~gone], before[:, ~gone], rtol=0, atol=0)
    assert pruner.sparsity == pytest.approx(round(0.25 * size.numel()) / size.numel())


def test_components_go_one_by_one_if_asked():
    model = linear(an.C, 3.0, -0.1)
    pruner = Pruner(model, target=0.5, steps=100, unit="component")
    pruner.prune(0.5)
    assert model[0].weight_tuples.flatten().tolist() == [3.0, 0.0]


def test_what_is_pruned_stays_zero_while_the_rest_learns():
    model = an.nn.Sequential(*(an.nn.Linear(16, 16, algebra=an.H) for _ in range(3)))
    pruner = Pruner(model, target=0.5, steps=10, every=1)
    pruner.prune(0.5)
    gone = (model[0].weight == 0).clone()
    kept = model[0].weight[~gone].clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
    assert (model[0].weight[gone] == 0).all()
    assert not torch.equal(model[0].weight[~gone], kept)
    x = torch.randn(4, 16)
    masked = model(x)
    pruner.finish()
    assert "0.weight" in model.state_dict()
    torch.testing.assert_close(model(x), masked)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v1", "cifar_resnet"])
def test_the_first_convolution_the_lift_and_the_last_layer_are_spared(name):
    model = an.models.create(name, algebra="M2R", width=0.25)
    names = {id(module): name for name, module in model.named_modules()}
    chosen = {names[id(layer)] for layer in prunable(model)}
    everything = {n for n, m in model.named_modules() if isinstance(m, an.nn.Linear | an.nn.Conv2d)}
    first = {"resnet18": "conv1", "mobilenet_v1": "stem.0", "cifar_resnet": "stem.0"}[name]
    assert everything - chosen == {first, "fc"}
    assert not any(n.startswith("lift") for n in chosen)


def test_accounting_sees_what_is_gone():
    """A pruned tuple skips its whole product; a pruned component does not."""
    for unit, skipped in (("tuple", True), ("component", False)):
        model = an.models.create("cifar_resnet", algebra="M2R", num_blocks=1)
        whole = an.account(model)
        Pruner(model, target=0.5, steps=100, unit=unit).prune(0.5)
        pruned = an.account(model)
        assert pruned.nonzero < 0.7 * whole.nonzero
        assert (pruned.multiplies_left < 0.7 * whole.multiplies) == skipped


def test_a_pruned_run_publishes_sparse_weights(tmp_path):
    hardware = Hardware(accelerator="cpu", log_steps=1)
    train.run(small("pruned"), tmp_path, hardware)
    weights = load_file(tmp_path / "weights.safetensors")
    assert "stage1.0.conv1.weight" in weights
    share = (weights["stage1.0.conv1.weight"] == 0).float().mean().item()
    assert share == pytest.approx(0.8, abs=0.05)
    assert (weights["stem.0.weight"] != 0).all()
    assert train.evaluate(tmp_path)["accuracy"] == pytest.approx(train.RunFolder(tmp_path).finished().value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": 1.5}, "target must lie between 0 and 1"),
        ({"begin": 0.9}, "begin and end must be shares of training with begin < end"),
        ({"every": 0}, "every must be at least 1"),
        ({"every": 90, "steps": 100, "end": 0.95}, "have a multiple among the last steps, from 0.95 of 100 on"),
        ({"unit": "row"}, "unit must be one of tuple, component; got 'row'"),
    ],
)
def test_wrong_arguments_are_explained(options, message):
    model = an.models.create("cifar_resnet", algebra="C", num_blocks=1)
    with pytest.raises(ValueError, match=message):
        Pruner(model, **{"target": 0.5, "steps": 1000, **options})
    with pytest.raises(ValueError, match="Linear has no layer to prune"):
        Pruner(torch.nn.Linear(2, 2), 0.5, 100)
    assert set(pruning.UNITS) == {"tuple", "component"}
