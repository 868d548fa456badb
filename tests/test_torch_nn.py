"""Every class of torch.nn works on tuples as it is, has a version over an algebra, or is refused with a reason.

`tools/sitegen/torch_nn.py` makes the table of docs/guides/torch_nn.md from the same lists.
"""

import inspect
import re

import pytest
import torch
from torch import nn as tnn

import algebranets as an
from algebranets import nn
from algebranets.algebra import H
from algebranets.nn import untouched
from algebranets.nn.namespace import Namespace
from algebranets.nn.refused import REFUSED
from algebranets.nn.untouched import Untouched
from conftest import knows_torch
from laws import permuted, times

CLASSES = {name: getattr(tnn, name) for name in dir(tnn) if inspect.isclass(getattr(tnn, name))}
OURS = [name for name in nn.__all__ if name in CLASSES and name not in untouched.__all__]
PASSED = [name for name in untouched.__all__ if name in CLASSES]

NUM_TUPLES = 6
CHANNELS = NUM_TUPLES * H.dim


def spatial(name):
    """The sizes of the spatial axes of an input for a class such as AvgPool2d."""
    axes = re.search(r"(\d)d$", name)
    return (4,) * int(axes[1]) if axes else ()


def options(name):
    """The arguments of the constructor in the examples."""
    exact = {
        "PReLU": (CHANNELS,),
        "Threshold": (0.1, -3.0),
        "Softmax": (1,),
        "LogSoftmax": (1,),
        "Softmin": (1,),
        "SyncBatchNorm": (CHANNELS,),
        "LayerNorm": (CHANNELS,),
        "FractionalMaxPool2d": (2, 2, None, False, torch.full((2, CHANNELS, 2), 0.5)),
        "FractionalMaxPool3d": (2, 2, None, False, torch.full((2, CHANNELS, 3), 0.5)),
        "Upsample": (None, 2.0),
        "UpsamplingNearest2d": (None, 2.0),
        "UpsamplingBilinear2d": (None, 2.0),
        "Unflatten": (1, (2 * H.dim, 3)),
        "Unfold": (2,),
        "Fold": ((3, 3), 2),
    }
    if name in exact:
        return exact[name]
    rules = {
        r"ConstantPad\dd": (1, 3.5),
        r".*Pad\dd": (1,),
        r"LPPool\dd": (2, 2),
        r"(Adaptive)?(Avg|Max)(Unp|P)ool\dd": (2,),
        r"BatchNorm\dd": (CHANNELS,),
    }
    return next((given for pattern, given in rules.items() if re.fullmatch(pattern, name)), ())


def shape(name):
    exact = {"Upsample": (2, CHANNELS, 4, 4), "SyncBatchNorm": (2, CHANNELS, 4), "Softmax2d": (2, CHANNELS, 4, 4)}
    exact |= {"LayerNorm": (2, 5, CHANNELS), "Fold": (2, CHANNELS * 4, 4), "Flatten": (2, CHANNELS, 3, 2)}
    exact |= {"Unfold": (2, CHANNELS, 3, 3)}
    return exact.get(name, (2, CHANNELS, *spatial(name)))


ROOMS = {name: kind.__module__.rpartition(".")[2] for name, kind in CLASSES.items()}
#: Classes that only move numbers. They are held to the law of linear maps.
MOVES = ("Flatten", "Unflatten", "Fold", "Unfold")
#: Classes that hold other layers or parameters, or that compute a real number from real numbers.
NO_LAW = {"container", "loss", "module", "parameter", "data_parallel", "transformer"}
#: Classes that take the indices of a max pooling, so they are tested together with it.
UNPOOL = ("MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d")
REDUCTIONS = ("CosineSimilarity", "PairwiseDistance")
PERMUTED = [
    name
    for name in PASSED
    if ROOMS[name] not in NO_LAW and name not in (*MOVES, *UNPOOL, *REDUCTIONS) and not name.startswith("Lazy")
]


@knows_torch
def test_every_class_is_in_one_of_three_lists():
    lists = [set(PASSED), set(OURS), set(REFUSED)]
    assert set(CLASSES) <= set().union(*lists)
    assert sum(map(len, lists)) == len(set().union(*lists))


@knows_torch
def test_every_module_and_function_is_passed_on_or_refused():
    names = {name for name in dir(tnn) if not name.startswith("_") and name not in CLASSES}
    assert names <= {*nn.__all__, *REFUSED}
    assert {name for name in untouched.__all__ if name not in CLASSES} <= names


@knows_torch
@pytest.mark.filterwarnings("ignore:`NLLLoss2d` has been deprecated")
def test_every_class_with_weights_is_ours_or_refused():
    """Weights are parameters with several axes. Containers have only the parameters of the layers in them."""
    containers = {"container", "module", "parameter", "data_parallel"}
    for name in PASSED:
        if ROOMS[name] in containers:
            continue
        given = (tnn.Identity(), 1) if name == "TransformerDecoder" else options(name)
        layer = CLASSES[name](*given)
        if name.startswith("Lazy"):
            layer(torch.randn(shape(name)))  # which gives its parameters their shapes
        assert all(p.dim() <= 1 for p in layer.parameters()), name


def test_names_are_torchs_ours_or_refused():
    assert all(getattr(nn, name) is CLASSES[name] is getattr(an.over(H), name) for name in PASSED)
    for name in OURS:
        assert getattr(nn, name).__module__.startswith("algebranets.")
        assert issubclass(getattr(nn, name), getattr(an.over(H), name))
    for name in REFUSED:
        for module in (nn, an.over(H)):
            with pytest.raises(AttributeError, match=rf"does not pass on torch's {name}: .* Use "):
                getattr(module, name)


def test_type_checkers_see_the_names_that_exist():
    assert sorted(untouched.__all__) == sorted(name for name in vars(Untouched) if not name.startswith("_"))
    declared = {name for name in vars(Namespace) if not name.startswith("_")}
    methods = {"cat", "chunk", "from_tuples", "join_heads", "split", "split_heads", "tuples"}
    assert declared - methods == set(nn.__all__) - set(untouched.__all__)


def test_what_would_take_tuples_apart_asks_for_an_algebra():
    for name in OURS:
        layer = getattr(nn, name)
        if "algebra" not in inspect.signature(layer).parameters:
            assert name == "TransformerEncoder"  # its layers have the algebra
            continue
        with pytest.raises(ValueError, match=rf"{name} needs an algebra: .*algebra='H'.*over\('H'\).*nn\.{name}\("):
            layer(*[8] * len([p for p in inspect.signature(layer).parameters.values() if p.default is p.empty]))


@pytest.mark.parametrize("name", PERMUTED)
def test_classes_that_are_passed_on_commute_with_permutations_of_tuples(name):
    layer = CLASSES[name](*options(name)).double()
    if "Dropout" in name or name in ("RReLU", "SyncBatchNorm"):
        layer.eval()
    x = torch.randn(shape(name), dtype=torch.float64)
    dim = 1 if name != "LayerNorm" else -1
    order = torch.randperm(NUM_TUPLES)
    assert torch.allclose(layer(permuted(x, order, H, dim)), permuted(layer(x), order, H, dim), atol=1e-12)


@pytest.mark.parametrize("name", MOVES)
def test_classes_that_move_numbers_commute_with_multiplication_on_the_right(name):
    layer = CLASSES[name](*options(name))
    x, q = torch.randn(shape(name), dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    assert torch.allclose(layer(times(x, q, H, 1)), times(layer(x), q, H, 1), atol=1e-12)


@pytest.mark.parametrize("name", UNPOOL)
def test_unpooling_commutes_with_permutations_of_tuples(name):
    torch.use_deterministic_algorithms(False)  # conftest sets it; torch's unpooling has no deterministic version
    x = torch.randn(shape(name), dtype=torch.float64)
    pool, unpool = CLASSES[name.replace("Unpool", "Pool")](2, return_indices=True), CLASSES[name](2)
    order = torch.randperm(NUM_TUPLES)
    first = unpool(*pool(permuted(x, order, H, 1)))
    assert torch.equal(first, permuted(unpool(*pool(x)), order, H, 1))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_distances_do_not_depend_on_the_order_of_tuples(name):
    x, y = torch.randn(2, 3, CHANNELS, dtype=torch.float64)
    order = torch.randperm(NUM_TUPLES)
    layer = CLASSES[name]()
    assert torch.allclose(layer(permuted(x, order, H, -1), permuted(y, order, H, -1)), layer(x, y))


def test_torchs_layers_that_ours_replace_break_the_law():
    x, order = torch.randn(2, CHANNELS, 3, dtype=torch.float64), torch.tensor([1, 2, 0, 3, 5, 4])
    for layer in (tnn.GroupNorm(12, CHANNELS).double(), tnn.LocalResponseNorm(3, alpha=1.0), tnn.GLU(1)):
        own = order if layer(x).shape == x.shape else order[:3]
        assert not torch.allclose(layer(permuted(x, order, H, 1)), permuted(layer(x), own, H, 1), atol=1e-3)
