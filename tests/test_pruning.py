"""Pruning: schedules, criteria, masks, spared weights, and runs that end sparse."""

import copy
import re
import warnings

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from safetensors.torch import load_file
from torch.nn.utils import parametrizations, parametrize
from torch.optim.swa_utils import AveragedModel

import algebranets as an
from algebranets.lab import train
from algebranets.lab.train import Hardware
from algebranets.pruning import CRITERIA, Pruner, Schedule, prunable, weights
from conftest import ALGEBRAS
from test_training import small
from zoo import LAYERS, outputs


def linear(algebra, *weights):
    """Return a layer of one tuple, given in table order, and a last layer, which is spared."""
    layers = [an.nn.Linear(algebra.dim, algebra.dim, algebra=algebra, bias=False) for _ in range(2)]
    layers[0].weight_tuples = torch.tensor(weights).reshape(algebra.dim, 1, 1)
    return an.nn.Sequential(*layers)


# The schedule ---------------------------------------------------------------------------------------------------------


def test_sparsity_follows_the_cubic_of_zhu_and_gupta():
    """Halfway between begin and end, it is 1 - (1/2)^3 of the target."""
    schedule = Schedule(target=0.8, steps=1000)
    values = {0: 0, 200: 0, 350: 0.8 * (1 - 0.75**3), 500: 0.7, 650: 0.8 * (1 - 0.25**3), 800: 0.8, 1000: 0.8}
    assert [schedule.share(step) for step in values] == pytest.approx(list(values.values()))


@pytest.mark.parametrize(
    ("options", "due"),
    [
        ({"steps": 100, "every": 10}, [30, 40, 50, 60, 70, 80]),
        ({"steps": 100, "every": 25}, [25, 50, 75, 100]),  # 75 is before the end, so the target is reached at 100
        ({"steps": 50, "every": 20, "name": "one-shot"}, [10, 20, 40]),  # later ones only regrow
        ({"steps": 50, "every": 20, "name": "constant"}, [0, 20, 40]),
        ({"every": 40}, [0, 40, 80]),
    ],
    ids=str,
)
def test_it_is_time_to_prune_every_so_often_between_begin_and_end(options, due):
    schedule = Schedule(target=0.5, **options)
    assert [step for step in range(101) if schedule.due(step) and step <= (schedule.steps or 100)] == due
    assert schedule.share(due[-1]) == 0.5


def test_the_other_schedules_reach_the_target_at_once():
    shot = Schedule(0.5, 100, name="one-shot")
    assert [shot.share(step) for step in (0, 19, 20, 100)] == [0, 0, 0.5, 0.5]
    assert [Schedule(0.5, 100, name="constant").share(step) for step in (0, 100)] == [0.5, 0.5]
    assert Schedule(0.5).share(0) == 0.5


def test_a_pruner_without_steps_prunes_when_it_is_made():
    model = an.nn.Sequential(*(an.nn.Linear(16, 16, algebra=an.M2R) for _ in range(3)))
    pruner = Pruner(model, target=0.75)
    assert pruner.sparsity == 0.75
    masks = [weight.stored == 0 for weight in pruner.weights]
    for _ in range(201):
        pruner.step()
    assert all(torch.equal(weight.stored == 0, mask) for weight, mask in zip(pruner.weights, masks, strict=True))


# Criteria -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("matrix", "sizes"),
    [
        ([[3, 0], [0, -1]], {"norm": 10**0.5, "determinant": 3, "smallest-eigenvalue": 1, "largest-eigenvalue": 3}),
        ([[0, -2], [2, 0]], {"norm": 8**0.5, "determinant": 4, "smallest-eigenvalue": 2, "largest-eigenvalue": 2}),
        ([[1, 1], [0, 1]], {"norm": 3**0.5, "determinant": 1, "smallest-eigenvalue": 1, "largest-eigenvalue": 1}),
        ([[1, 2], [2, 4]], {"norm": 5, "determinant": 0, "smallest-eigenvalue": 0, "largest-eigenvalue": 5}),
    ],
    ids=str,
)
def test_criteria_of_two_by_two_matrices_by_hand(matrix, sizes):
    """A diagonal matrix, twice a rotation (its eigenvalues are 2i and -2i), a shear, and a zero divisor."""
    t = torch.tensor(matrix, dtype=torch.float64).flatten()
    assert {name: float(size(t, an.M2R)) for name, size in CRITERIA.items()} == pytest.approx(sizes, abs=1e-7)


@pytest.mark.parametrize("name", ["M3R", "M4R", "M2C", "diagonal(4)", "DUAL"])
def test_criteria_are_those_of_the_matrix_of_left_multiplication(name):
    algebra = an.algebra.get(name)
    torch.manual_seed(0)
    t = torch.randn(algebra.dim, 7, dtype=torch.float64)
    structure = torch.zeros(algebra.dim, algebra.dim, algebra.dim, dtype=torch.float64)
    for i, j, k, c in algebra.terms:
        structure[i, j, k] = c
    left = torch.einsum("ijk,in->nkj", structure, t)
    eigenvalues = torch.linalg.eigvals(left).abs()
    torch.testing.assert_close(CRITERIA["smallest-eigenvalue"](t, algebra), eigenvalues.amin(1), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(CRITERIA["largest-eigenvalue"](t, algebra), eigenvalues.amax(1), rtol=1e-6, atol=1e-7)
    order = torch.linalg.det(left).abs().argsort()  # counts a block once for each of its copies
    assert torch.equal(CRITERIA["determinant"](t, algebra).argsort(), order)


@pytest.mark.parametrize("name", ["C", "H", "R"])
def test_where_tuples_rotate_and_scale_all_criteria_agree(name):
    algebra = an.algebra.get(name)
    t = torch.randn(algebra.dim, 50, dtype=torch.float64)
    orders = [size(t, algebra).argsort().tolist() for size in CRITERIA.values()]
    assert all(order == orders[0] for order in orders)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_smallest_by_the_criterion_go(criterion):
    torch.manual_seed(0)
    layer = an.nn.Linear(32, 32, algebra=an.M2R)
    before = layer.weight_tuples.detach().clone()
    Pruner(layer, 0.5, criterion=criterion, layers="weight")
    gone, size = (layer.weight_tuples == 0).all(0), CRITERIA[criterion](before, an.M2R)
    assert gone.sum() == 32
    assert size[gone].max() <= size[~gone].min()


def test_what_is_pruned_does_not_come_back_before_a_tuple_that_is_just_as_small():
    """Both tuples have determinant 0, but one is already zero."""
    layer = an.nn.Linear(4, 8, algebra=an.M2R, bias=False)
    layer.weight_tuples = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0.1]]).T.reshape(4, 2, 1)
    pruner = Pruner(layer, 0.5, criterion="norm", layers="weight")
    assert (layer.weight_tuples == 0).all(0).flatten().tolist() == [False, True]
    pruner.criterion = "determinant"
    pruner.prune(0.5)
    assert (layer.weight_tuples == 0).all(0).flatten().tolist() == [False, True]


# Masks ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=str)
def test_the_smallest_tuples_go_whole_and_no_others(algebra):
    torch.manual_seed(0)
    model = an.nn.Sequential(*(an.nn.Conv2d(4 * algebra.dim, 3 * algebra.dim, 3, algebra=algebra) for _ in range(2)))
    layer = model[1]
    before = layer.weight_tuples.clone()
    pruner = Pruner(model, target=0.5, steps=100, layers="1.*")
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


def test_global_ranking_prunes_the_layer_of_small_weights_more():
    model = an.nn.Sequential(*(an.nn.Linear(16, 16, algebra=an.H) for _ in range(3)))
    with torch.no_grad():
        model[0].weight *= 100
    Pruner(model, target=0.5, scope="global")
    assert (model[0].weight != 0).all()
    assert (model[1].weight == 0).all()
    assert (model[2].weight != 0).all()  # spared


def test_a_global_threshold_is_one_number_for_all_layers():
    torch.manual_seed(0)
    model = an.nn.Sequential(*(an.nn.Linear(16 * n, 16 * n + 16, algebra=an.C) for n in (1, 2, 3)))
    pruner = Pruner(model, target=0.4, scope="global", layers="*")
    before = [weight.tuples(weight.layer.parametrizations.weight.original).norm(dim=0) for weight in pruner.weights]
    gone = [(weight.tuples(weight.stored) == 0).all(0) for weight in pruner.weights]
    assert max(size[mask].max() for size, mask in zip(before, gone, strict=True)) <= min(
        size[~mask].min() for size, mask in zip(before, gone, strict=True)
    )
    assert sum(int(mask.sum()) for mask in gone) == round(0.4 * sum(mask.numel() for mask in gone))


def test_with_regrow_a_tuple_comes_back_when_it_has_grown():
    other = an.nn.Linear(4, 2, algebra=an.C, bias=False)
    other.weight_tuples = torch.tensor([[5.0, 1.0], [0.0, 0.0]]).reshape(2, 1, 2)
    pruner = Pruner(other, target=0.5, every=1, regrow=True, layers="weight")
    optimizer = torch.optim.SGD(other.parameters(), lr=1.0)
    assert (other.weight_tuples != 0).any(0).tolist() == [[True, False]]
    other(torch.tensor([[0.0, -9.0, 0.0, 0.0]])).sum().backward()  # the second input's first component
    optimizer.step()
    pruner.step()
    assert (other.weight_tuples != 0).any(0).tolist() == [[False, True]]
    pruner.finish()
    assert (other.weight_tuples[:, 0, 0] == 0).all()


def test_a_pruner_of_a_saved_model_goes_on_where_it_was():
    """A plain training loop is stopped at each step in turn. Model, optimizer and pruner are saved and loaded."""

    def start():
        torch.manual_seed(0)
        model = an.nn.Sequential(*(an.nn.Linear(16, 16, algebra=an.M2R) for _ in range(3)))
        pruner = Pruner(model, target=0.8, steps=10, every=2)
        return [model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), pruner]

    def go_on(parts, steps):
        model, optimizer, pruner = parts
        for step in steps:
            optimizer.zero_grad()
            x = torch.randn(8, 16, generator=torch.Generator().manual_seed(step))
            model(x).square().mean().backward()
            optimizer.step()
            pruner.step()
        return model.state_dict()

    whole = go_on(start(), range(10))
    for stop in range(1, 10):
        first = start()
        go_on(first, range(stop))
        saved, second = [part.state_dict() for part in first], start()
        for part, state in zip(second, saved, strict=True):
            part.load_state_dict(state)
        resumed = go_on(second, range(stop, 10))
        assert all(torch.equal(resumed[name], value) for name, value in whole.items())


# Copies, and weights that are computed --------------------------------------------------------------------------------


def three_layers():
    torch.manual_seed(0)
    return an.nn.Sequential(*(an.nn.Linear(16, 16, algebra=an.M2R) for _ in range(3)))


def test_copies_outlive_the_end_of_pruning():
    """In torch, deep copies share the class that computes a masked weight. Finishing one must not affect the others."""
    model, x = three_layers(), torch.randn(4, 16)
    pruner = Pruner(model, 0.75)
    averaged, copies = AveragedModel(model), [copy.deepcopy(model), copy.deepcopy(copy.deepcopy(model))]
    small, masked = an.sparse(model), model(x)
    pruner.finish()
    for made in (model, averaged, *copies, small, an.sparse(copies[0])):
        torch.testing.assert_close(made(x), masked)
    with pytest.raises(ValueError, match="the model must have the masks of a Pruner to be finished"):
        pruner.finish()
    pruner.finish(averaged.module)
    assert sorted(averaged.module.state_dict()) == sorted(model.state_dict())
    for made in (averaged, *copies):
        torch.testing.assert_close(made(x), masked)


def test_an_average_of_weights_follows_the_masks_and_ends_as_plain_weights():
    model = three_layers()
    pruner = Pruner(model, 0.75, steps=10, every=2)
    averaged = AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
        pruner.step()
        averaged.update_parameters(model)
    pruner.finish()
    pruner.finish(averaged.module)
    for mine, other in zip(model, averaged.module, strict=True):
        assert torch.equal(mine.weight == 0, other.weight == 0)
        assert not torch.equal(mine.weight, other.weight)
    assert [type(layer).__name__ for layer in an.sparse(averaged.module)] == ["SparseLinear", "SparseLinear", "Linear"]


def test_a_copy_may_be_pruned_further_than_its_original():
    """A mask for another weight changes the class of the copy, and not that of the original."""
    gru = an.nn.GRU(8, 8, algebra=an.H)
    Pruner(gru, 0.5, layers="weight_ih_l0")
    other = copy.deepcopy(gru)
    pruner = Pruner(other, 0.5, layers="weight_hh_l0")
    x = torch.randn(3, 2, 8)
    before = gru(x)[0]
    pruner.finish()
    assert (other.weight_hh_l0 == 0).sum() == other.weight_hh_l0.numel() // 2
    torch.testing.assert_close(gru(x)[0], before)
    assert "weight_hh_l0" in dict(gru.named_parameters())


NORMS = [parametrizations.weight_norm, parametrizations.spectral_norm, parametrizations.orthogonal]


@pytest.mark.parametrize("regrow", [False, True])
@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
def test_what_a_parametrization_computes_is_pruned_by_its_size(norm, regrow):
    layer = norm(an.nn.Linear(32, 32, algebra=an.H, dtype=torch.float64)).eval()
    before = layer.weight_tuples.detach().clone()
    pruner = Pruner(layer, 0.75, layers="*", regrow=regrow)
    gone, size = (layer.weight_tuples == 0).all(0), before.norm(dim=0)
    assert (int(gone.sum()), pruner.sparsity) == (48, 0.75)
    assert size[gone].max() <= size[~gone].min()
    torch.testing.assert_close(layer.weight_tuples[:, ~gone], before[:, ~gone])
    x = torch.randn(5, 32, dtype=torch.float64)
    masked = layer(x)
    pruner.finish()
    assert not parametrize.is_parametrized(layer)
    assert isinstance(layer.weight, torch.nn.Parameter)
    torch.testing.assert_close(layer(x), masked)


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.__name__)
def test_to_ask_for_the_sparsity_changes_nothing(norm):
    """In training mode, a spectral norm updates its estimate whenever its weight is computed."""
    layer = norm(an.nn.Linear(32, 32, algebra=an.H))
    pruner = Pruner(layer, 0.75, layers="*")
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    assert pruner.sparsity == 0.75
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
    assert layer.parametrizations.weight.training


def test_a_parametrization_after_the_mask_is_pruned_and_finished_as_well():
    layer = an.nn.Linear(32, 32, algebra=an.H)
    pruner = Pruner(layer, 0.5, steps=100, layers="*")
    parametrizations.spectral_norm(layer)
    pruner.prune(0.5)
    assert (layer.weight_tuples == 0).all(0).sum() == 32
    pruner.finish()
    assert (layer.weight_tuples == 0).all(0).sum() == 32


@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l1_reverse"])
def test_normalized_weights_of_recurrent_layers_are_pruned(name):
    gru = an.nn.GRU(8, 8, num_layers=2, bidirectional=True, algebra=an.H)
    parametrizations.weight_norm(gru, name)
    assert len(weights(gru)) == 8
    pruner, x = Pruner(gru, 0.5, layers="*"), torch.randn(3, 2, 8)
    masked = gru(x)[0]
    assert pruner.sparsity == 0.5
    pruner.finish()
    assert (getattr(gru, name) == 0).float().mean() == 0.5
    torch.testing.assert_close(gru(x)[0], masked)


def test_normalized_projections_of_attention_are_pruned():
    layer = an.nn.MultiheadAttention(8, 2, algebra=an.C)
    parametrizations.weight_norm(layer, "in_proj_weight")
    assert [weight.path for weight in weights(layer)] == ["in_proj_weight", "out_proj.weight"]
    Pruner(layer, 0.5, layers="*").finish()
    assert (layer.in_proj_weight == 0).float().mean() == 0.5


def with_hook(layer, hook, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return hook(layer, name)


@pytest.mark.parametrize("hook", [torch.nn.utils.weight_norm, torch.nn.utils.spectral_norm], ids=lambda h: h.__name__)
@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0"])
def test_weights_that_a_hook_computes_are_refused_and_nothing_changes(name, hook):
    model = an.nn.Sequential(an.nn.Linear(8, 8, algebra=an.H), an.nn.GRU(8, 8, algebra=an.H))
    with_hook(model[1], hook, name)
    before = sorted(model.state_dict())
    with pytest.raises(ValueError, match=rf"1\.{name} must be a parameter to be pruned, but a hook computes it"):
        Pruner(model, 0.5, layers="*")
    assert sorted(model.state_dict()) == before
    assert not any(parametrize.is_parametrized(module) for module in model.modules())


def test_a_second_pruner_of_a_weight_and_a_weight_named_twice_are_refused():
    model = three_layers()
    twice = weights(model)[:1] * 2
    with pytest.raises(ValueError, match="layers must hold each weight once"):
        Pruner(model, 0.5, layers=twice)
    assert not any(parametrize.is_parametrized(module) for module in model.modules())
    first = Pruner(model, 0.5, layers="1.*")
    with pytest.raises(ValueError, match=r"1\.weight has the mask of another Pruner: finish\(\) that one first"):
        Pruner(model, 0.9, layers="*")
    assert not parametrize.is_parametrized(model[0])
    first.finish()
    assert Pruner(model, 0.9, layers="*").sparsity == pytest.approx(0.9, abs=0.05)


def test_masked_models_compile_whole():
    model, x = three_layers(), torch.randn(4, 16)
    Pruner(model, 0.75)
    torch.testing.assert_close(torch.compile(model, backend="aot_eager", fullgraph=True)(x), model(x))


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("algebra", ["M2R", "M3R", "H"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_named_and_not_pruned(criterion, algebra, value):
    """Computing the eigenvalues of such weights used to end the process."""
    dim = an.algebra.get(algebra).dim
    model = an.nn.Sequential(*(an.nn.Linear(2 * dim, 2 * dim, algebra=algebra) for _ in range(2)))
    pruner = Pruner(model, 0.5, steps=10, every=1, criterion=criterion, layers="*")
    model[1].parametrizations.weight.original.data[0, 0] = value
    with pytest.raises(ValueError, match=r"1\.weight must be finite to be pruned; .* training has diverged"):
        pruner.prune(0.5)
    assert all(stage.kept.all() for stage in model.modules() if type(stage).__name__ == "Mask")
    for layer in model:
        parametrize.remove_parametrizations(layer, "weight")
    with pytest.raises(ValueError, match=r"1\.weight must be finite to be pruned"):
        Pruner(model, 0.5, criterion=criterion, layers="*")
    assert not any(parametrize.is_parametrized(module) for module in model.modules())


def test_a_run_whose_weights_are_not_finite_says_that_it_has_diverged_before_it_prunes(tmp_path):
    class Spoil(Callback):
        def on_before_zero_grad(self, trainer, task, *_):
            if trainer.global_step == 2:
                task.model.stage1[0].conv1.parametrizations.weight.original.data.fill_(float("nan"))

    experiment = small(
        "pruned", **{"pruning.criterion": "largest-eigenvalue", "pruning.every": 1, "pruning.begin": 0.0}
    )
    with pytest.raises(ValueError, match=r"weights are no longer finite at step 3: training has diverged"):
        train.run(experiment, tmp_path, Hardware(accelerator="cpu", log_steps=1000), [Spoil()])


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v1", "cifar_resnet"])
def test_the_first_convolution_the_lift_and_the_last_layer_are_spared(name):
    model = an.models.create(name, algebra="M2R", width=0.25)
    chosen = {weight.path.removesuffix(".weight") for weight in prunable(model)}
    everything = {n for n, m in model.named_modules() if isinstance(m, an.nn.Linear | an.nn.Conv2d)}
    first = {"resnet18": "conv1", "mobilenet_v1": "stem.0", "cifar_resnet": "stem.0"}[name]
    assert everything - chosen == {first, "fc"}
    assert not any(n.startswith("lift") for n in chosen)


@pytest.mark.parametrize("example", LAYERS, ids=lambda example: example.label)
def test_every_weight_over_an_algebra_can_be_pruned_and_no_other(example):
    """This includes stacked gates and projections. The layer computes with the remaining weights."""
    layer = example.make(an.H).eval()
    found = weights(layer)
    real = example.name.startswith(("Lift", "Whitening"))
    matrices = {n for n, p in layer.named_parameters() if p.dim() > 1 and "weight" in n.rpartition(".")[2]}
    assert {weight.path for weight in found} == (set() if real else matrices)
    if found:
        pruner, inputs = Pruner(layer, target=0.5, layers="*"), example.feed(an.H)
        masked = outputs(layer(*inputs))
        pruner.finish()
        for weight in found:
            gone = (weight.tuples(weight.stored) == 0).all(0)
            assert gone.sum() == round(0.5 * gone.numel())
        torch.testing.assert_close(outputs(layer(*inputs)), masked)


def test_accounting_sees_what_is_gone():
    """A pruned tuple skips its whole product; a pruned component does not."""
    for unit, skipped in (("tuple", True), ("component", False)):
        model = an.models.create("cifar_resnet", algebra="M2R", num_blocks=1)
        whole = an.account(model)
        Pruner(model, target=0.5, unit=unit)
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


def test_in_lightning_it_is_a_callback():
    torch.manual_seed(0)
    model = an.models.create("cifar_resnet", algebra="H", num_blocks=1, width=0.25, num_classes=3)
    pruner = Pruner(model, 0.75, steps=6, every=2)
    task = train.Classification(model, num_classes=3, optimizer=train.Optimizer(lr=0.1), steps=6)
    images = torch.utils.data.TensorDataset(torch.randn(24, 3, 8, 8), torch.arange(24) % 3)
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    pl.Trainer(max_steps=6, callbacks=[train.Prune(pruner)], **options).fit(
        task, torch.utils.data.DataLoader(images, batch_size=4)
    )
    assert pruner.sparsity == pytest.approx(0.75, abs=0.01)
    assert pruner.count == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": 1.5}, "target, the share of tuples to prune, must be larger than 0 and less than 1"),
        ({"target": 0}, "target, the share of tuples to prune, must be larger than 0 and less than 1; got 0"),
        ({"target": float("nan")}, "target, the share of tuples to prune, must be larger than 0 and less than 1"),
        ({"begin": 0.9}, "begin and end must be shares of training with begin < end"),
        ({"steps": -1}, "steps must be the length of training, or 0 to prune at once; got -1"),
        ({"every": 0}, "every must be at least 1"),
        ({"every": 90, "steps": 100, "end": 0.95}, "have a multiple among the last steps, from 0.95 of 100 on"),
        ({"schedule": "linear"}, "schedule must be one of cubic, one-shot, constant; got 'linear'"),
        ({"unit": "row"}, "unit must be one of tuple, component; got 'row'"),
        ({"scope": "model"}, "scope must be one of layer, global; got 'model'"),
        ({"criterion": "size"}, "criterion must be one of norm, determinant, .*; got 'size'"),
        ({"criterion": "determinant", "unit": "component"}, "criterion must be norm where components are pruned"),
        ({"layers": "stage9.*"}, "layers must match some weights of CifarResNet: stem.0.weight, .*; got 'stage9"),
    ],
)
def test_wrong_arguments_are_explained(options, message):
    model = an.models.create("cifar_resnet", algebra="C", num_blocks=1)
    with pytest.raises(ValueError, match=message):
        Pruner(model, **{"target": 0.5, "steps": 1000, **options})


def test_what_cannot_be_pruned_is_explained():
    with pytest.raises(ValueError, match="Linear has no weight to prune"):
        Pruner(torch.nn.Linear(2, 2), 0.5, 100)
    with pytest.raises(ValueError, match="layers must hold some weights of the model"):
        Pruner(an.nn.Linear(4, 4, algebra=an.H), 0.5, layers=[])
    with pytest.raises(ValueError, match="criterion must be norm over CROSS, which has no unit"):
        Pruner(an.nn.Linear(6, 6, algebra=an.CROSS), 0.5, criterion="smallest-eigenvalue", layers="*")


@pytest.mark.parametrize(
    ("options", "most", "least"),
    [
        ({"target": 0.03}, "the largest weight has 16 tuples, and 0.03 of them rounds to 0", 0.0312),
        ({"target": 0.03, "scope": "global", "layers": "0.*"}, "the model's weights have 16 tuples", 0.0312),
        ({"target": 0.015, "scope": "global"}, "the model's weights have 32 tuples", 0.0156),
        ({"target": 0.007, "unit": "component"}, "the largest weight has 64 components", 0.00781),
    ],
)
def test_a_target_that_prunes_no_tuple_of_any_weight_is_an_error(options, most, least):
    model = an.nn.Sequential(*(an.nn.Linear(16, 16, algebra=an.H) for _ in range(3)))
    with pytest.raises(ValueError, match=re.escape(f"target={options['target']} would prune nothing: {most}")) as error:
        Pruner(model, **options)
    assert f"must be larger than {least}" in str(error.value)
    assert not any(parametrize.is_parametrized(module) for module in model.modules())
    pruner = Pruner(model, **{**options, "target": 1.01 * least})
    assert pruner.sparsity > 0


def test_finishing_when_nothing_was_pruned_is_an_error():
    """Otherwise a loop without ``pruner.step()`` ends with a dense model that passes for a pruned one."""
    model = three_layers()
    pruner, early = Pruner(model, 0.75, steps=1000), copy.deepcopy(model)
    with pytest.raises(ValueError, match=r"nothing was pruned after 0 of 1000 steps: call step\(\) after each"):
        pruner.finish()
    for _ in range(1000):
        pruner.step()
    with pytest.raises(ValueError, match="nothing was pruned in this copy: copy the buffers"):
        pruner.finish(early)
    pruner.finish()
    assert (model[0].weight == 0).float().mean() == 0.75


def test_a_model_on_the_meta_device_can_be_finished():
    """Its masks have no values, so it is not known whether anything was pruned."""
    layer = an.nn.Linear(16, 16, algebra=an.H, device="meta")
    Pruner(layer, 0.5, layers="*").finish()
    assert layer.weight.is_meta
    assert not parametrize.is_parametrized(layer)


@pytest.mark.parametrize("layers", ["", "*", "0.*"])
def test_a_model_without_weights_over_an_algebra_is_not_prunable(layers):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
    for find in (lambda: prunable(model, layers), lambda: Pruner(model, 0.5, layers=layers)):
        with pytest.raises(ValueError, match=r"has no weight to prune|layers must match some weights"):
            find()
