"""`algebranets.over`: torch.nn's names with an algebra bound."""

import copy
import inspect
import io
import pickle

import pytest
import torch
from torch import nn as tnn

import algebranets as an
from algebranets.algebra import M2R, H, R
from conftest import over_kinds
from zoo import ONE_EACH

nn = an.over("H")


class Derived(nn.Linear):
    """A layer that a user derives from a class with a bound algebra."""

    def __init__(self, features, scale=2.0):
        super().__init__(features, features)
        self.scale = scale

    def forward(self, x):
        return self.scale * super().forward(x)


class Holder(tnn.Module):
    """A module that keeps a class, as many models keep the class of their norms."""

    def __init__(self):
        super().__init__()
        self.kind = nn.Conv2d


@pytest.mark.parametrize("example", ONE_EACH, ids=lambda example: example.name)
def test_every_layer_is_made_over_the_bound_algebra(example):
    sizes = (size * H.dim for size in example.sizes)
    options = {k: v * H.dim if k in example.sized else v for k, v in example.options.items()}
    layer = getattr(nn, example.name)(*sizes, *example.rest, **options)
    assert type(layer) is type(example.make(H))
    assert str(layer) == str(example.make(H))
    assert layer.algebra == H


@over_kinds
def test_one_line_gives_the_same_network(algebra):
    nn = an.over(algebra)
    torch.manual_seed(0)
    short = nn.Sequential(nn.Linear(2 * algebra.dim, algebra.dim), nn.ReLU(), nn.Linear(algebra.dim, algebra.dim))
    torch.manual_seed(0)
    long = tnn.Sequential(
        an.nn.Linear(2 * algebra.dim, algebra.dim, algebra=algebra),
        tnn.ReLU(),
        an.nn.Linear(algebra.dim, algebra.dim, algebra=algebra),
    )
    x = torch.randn(3, 2 * algebra.dim)
    assert torch.equal(short(x), long(x))


def test_two_algebras_are_used_side_by_side():
    first, second = an.over("H"), an.over("M2R")
    layers = [first.Linear(8, 8), second.Linear(8, 8), first.Linear(8, 8)]
    assert [layer.algebra for layer in layers] == [H, M2R, H]
    with pytest.raises(ValueError, match="Linear needs an algebra"):
        an.nn.Linear(8, 8)


def test_one_layer_may_have_another_algebra():
    assert nn.Linear(7, 5, algebra="R").algebra == R


def test_bound_classes_are_tested_for_and_derived_from_like_torchs():
    linear, derived = nn.Linear(8, 8), Derived(8)
    assert isinstance(linear, nn.Linear)
    assert isinstance(linear, an.nn.Linear)
    assert isinstance(derived, Derived)
    assert isinstance(derived, nn.Linear)
    assert not isinstance(linear, Derived)
    assert not isinstance(linear, nn.Conv2d)
    assert issubclass(an.nn.Linear, nn.Linear)
    assert issubclass(Derived, nn.Linear)
    assert not issubclass(an.nn.Linear, Derived)
    assert derived.algebra == H
    x = torch.randn(3, 8)
    assert torch.equal(derived(x), 2 * tnn.functional.linear(x, an.product.real_weight(derived.weight, H)))


def test_types_of_layers_are_compared_with_bound_classes_like_with_torchs():
    layer = nn.Linear(8, 8)
    assert type(layer) == nn.Linear  # noqa: E721
    assert nn.Linear == type(layer)  # noqa: E721
    assert type(layer) in (nn.Conv2d, nn.Linear)
    assert {nn.Linear: "linear"}[type(layer)] == "linear"
    assert an.over("M2R").Linear == nn.Linear
    assert type(layer) != nn.Conv2d  # noqa: E721
    assert nn.Conv2d != nn.Linear
    assert Derived != nn.Linear
    assert type(layer) != Derived  # noqa: E721


def test_compiled_code_tests_for_bound_classes_like_eager_code():
    def forward(layers, x):
        for layer in layers:
            x = layer(x) + 3 * (type(layer) == nn.Linear) + 5 * isinstance(layer, nn.Linear)  # noqa: E721
        return x

    layers, x = tnn.ModuleList([nn.Linear(8, 8), Derived(8), nn.ReLU()]), torch.randn(3, 8)
    torch.testing.assert_close(torch.compile(forward, backend="eager", fullgraph=True)(layers, x), forward(layers, x))


def test_an_attribute_of_a_bound_class_is_not_set_without_effect():
    with pytest.raises(AttributeError, match=r"color cannot be set on .*over\(H\).Linear.*algebranets.nn.Linear"):
        nn.Linear.color = "red"
    Derived.color = "red"
    assert Derived(8).color == "red"
    del Derived.color


def test_constructors_of_all_bases_are_called():
    class Scaled(an.nn.Linear):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.scale = 2

    class Both(nn.Linear, Scaled):
        pass

    assert Both(8, 8).scale == 2
    assert Both(8, 8).algebra == H


def test_bound_classes_are_type_hints_that_are_checked_at_run_time():
    beartype = pytest.importorskip("beartype")

    @beartype.beartype
    def features(layer: nn.Linear | None, default: int) -> int:
        return default if layer is None else layer.in_features

    assert features(nn.Linear(8, 8), 0) == 8
    with pytest.raises(beartype.roar.BeartypeCallHintParamViolation):
        features(nn.ReLU(), 0)


def test_models_and_classes_are_pickled_and_copied():
    for value in (nn, nn.Linear, Derived):
        assert pickle.loads(pickle.dumps(value)) is value
    assert copy.deepcopy(nn.Linear) is nn.Linear
    assert pickle.loads(pickle.dumps(Holder())).kind is nn.Conv2d
    buffer = io.BytesIO()
    model = tnn.Sequential(Derived(8), nn.Linear(8, 4))
    torch.save(model, buffer)
    buffer.seek(0)
    x = torch.randn(3, 8)
    assert torch.equal(torch.load(buffer, weights_only=False)(x), model(x))


def test_help_shows_the_arguments():
    assert inspect.signature(nn.Linear).parameters["algebra"].default == "H"
    assert list(inspect.signature(nn.Linear).parameters)[:2] == ["in_features", "out_features"]
    assert list(inspect.signature(Derived).parameters) == ["features", "scale"]
    assert nn.Linear.__doc__ == an.nn.Linear.__doc__
    assert repr(nn.Linear) == "<class 'algebranets.over(H).Linear'>"
    assert repr(nn.init) == "algebranets.over(H).init"
    assert {"Linear", "ReLU", "cat"} <= set(dir(nn))
    assert {"glu", "relu"} <= set(dir(nn.functional))


def test_class_methods_have_the_algebra():
    vectors = torch.randn(5, 8)
    layer = nn.Embedding.from_pretrained(vectors)
    assert layer.algebra == H
    assert torch.equal(layer.weight, vectors)
    assert nn.EmbeddingBag.from_pretrained(vectors).algebra == H
    with pytest.raises(ValueError, match="Embedding needs an algebra"):
        an.nn.Embedding.from_pretrained(vectors)


def test_functions_have_the_algebra():
    x = torch.randn(2, 16, 4)
    assert torch.equal(nn.functional.glu(x, 1), an.nn.functional.glu(x, 1, algebra=H))
    assert nn.functional.relu is torch.nn.functional.relu
    weight = nn.Linear(8, 8).weight
    torch.manual_seed(0)
    first = nn.init.kaiming_normal_(weight, mode="fan_out", nonlinearity="relu").clone()
    torch.manual_seed(0)
    assert torch.equal(first, an.nn.init.kaiming_normal_(weight, mode="fan_out", nonlinearity="relu", algebra=H))
    assert nn.init.zeros_ is torch.nn.init.zeros_
    assert torch.equal(nn.cat([x, x], 1), an.cat([x, x], 1, algebra=H))
    assert torch.equal(nn.chunk(x, 2, 1)[1], an.chunk(x, 2, 1, algebra=H)[1])
    assert torch.equal(nn.split(x, [4, 12], 1)[1], an.split(x, [4, 12], 1, algebra=H)[1])
    assert torch.equal(nn.tuples(x, 1), an.tuples(x, H, 1))
    assert torch.equal(nn.from_tuples(nn.tuples(x, 1), 1), x)
    assert torch.equal(nn.tuples(x.mT), an.tuples(x.mT, H))
    assert torch.equal(nn.from_tuples(nn.tuples(x.mT)), x.mT)
    assert torch.equal(nn.join_heads(nn.split_heads(x.mT, 2)), x.mT)


@pytest.mark.parametrize(
    ("name", "hint"), [("Relu", "ReLU"), ("Conv2D", "Conv2d"), ("Linaer", "Linear"), ("BatchNrom2d", "BatchNorm2d")]
)
def test_a_misspelled_name_is_an_error_with_a_hint(name, hint):
    for module in (nn, an.nn):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'. Did you mean '{hint}'?"):
            getattr(module, name)


def test_an_unknown_algebra_is_an_error():
    with pytest.raises(ValueError, match="unknown algebra 'X'"):
        an.over("X")
