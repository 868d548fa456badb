"""Functions of torch.nn.functional are passed on, have a version for tuples, or are refused."""

import inspect
import re

import pytest
import torch
import torch.nn.functional as F

import algebranets as an
from algebranets import CROSS, M2R, C, H, R
from algebranets.nn import functional
from conftest import knows_torch

#: Arguments of each function for tuples, for an algebra of dimension d: the input's shape, then the others.
OURS = {
    "channel_shuffle": lambda d: ((2, 6 * d, 5), 3),
    "glu": lambda d: ((2, 6 * d, 5), 1),
    "group_norm": lambda d: ((2, 6 * d, 5), 3),
    "instance_norm": lambda d: ((2, 6 * d, 5),),
    "local_response_norm": lambda d: ((2, 6 * d, 5), 3),
    "pixel_shuffle": lambda d: ((2, 12 * d, 3, 5), 2),
    "pixel_unshuffle": lambda d: ((2, 3 * d, 4, 6), 2),
    "rms_norm": lambda d: ((2, 5, 6 * d), (6 * d,)),
}
#: Functions that torch's own functions use, not for users.
INTERNAL = {"assert_int_or_pair", "boolean_dispatch", "handle_torch_function"}
over_ours = pytest.mark.parametrize("name", OURS)


def torchs_functions():
    """The functions of torch.nn.functional, without types and imported names."""
    names = {name for name in dir(F) if not name.startswith(("_", "has_torch_function")) and name != "Optional"}
    return {name for name in names - INTERNAL if callable(getattr(F, name)) and not inspect.isclass(getattr(F, name))}


@knows_torch
def test_every_function_of_torch_is_passed_on_or_has_a_version_for_tuples_or_is_refused():
    refused = set(functional.REFUSED)
    kinds = [set(functional.untouched.__all__), set(OURS), refused]
    assert torchs_functions() <= set.union(*kinds)
    assert sum(map(len, kinds)) == len(set.union(*kinds)), "a function is of two kinds"
    newer = {"linear_cross_entropy", "scaled_addmm", "scaled_addmm_"}  # not in torch 2.11
    assert set.union(*kinds) - newer <= torchs_functions()
    assert set(functional.__all__) == kinds[0] | kinds[1]


def test_functions_that_need_no_algebra_are_torchs():
    for name in functional.untouched.__all__:
        assert getattr(functional, name) is getattr(F, name)
    assert an.nn.functional is functional


@pytest.mark.parametrize("name", functional.REFUSED)
def test_functions_of_real_matrices_say_what_to_use(name):
    assert not hasattr(functional, name)
    with pytest.raises(AttributeError, match=f"does not pass on torch's {name}: .* Use ") as error:
        getattr(functional, name)
    for module, layer in re.findall(r"algebranets\.(nn|product)\.(\w+)", str(error.value)):
        assert hasattr(getattr(an, module), layer)


def test_a_misspelled_function_is_an_error_with_a_suggestion():
    with pytest.raises(AttributeError, match=r"no attribute 'groupnorm'[.] Did you mean 'group_norm'"):
        functional.groupnorm  # noqa: B018


@over_ours
def test_functions_for_tuples_take_torchs_arguments(name):
    """The arguments of functions that torch writes in C++ cannot be read."""
    *parameters, algebra = inspect.signature(getattr(functional, name)).parameters.values()
    assert algebra.name == "algebra"
    assert algebra.kind is algebra.KEYWORD_ONLY
    if inspect.isfunction(getattr(F, name)):
        theirs = inspect.signature(getattr(F, name)).parameters.values()
        assert [(p.name, p.default) for p in parameters] == [(p.name, p.default) for p in theirs]


@over_ours
def test_without_an_algebra_a_function_names_both_ways_to_give_one(name):
    shape, *args = OURS[name](4)
    message = f"{name} needs an algebra: write functional.{name}(..., algebra='H'), or bind the algebra once with nn ="
    with pytest.raises(ValueError, match=re.escape(message)):
        getattr(functional, name)(torch.randn(shape), *args)


@over_ours
def test_over_r_a_function_is_torchs(name):
    shape, *args = OURS[name](1)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    results = [getattr(functional, name)(x, *args, algebra="R"), getattr(F, name)(x, *args)]
    direction = torch.randn_like(results[0])
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*(torch.autograd.grad((y * direction).sum(), x)[0] for y in results))


@over_ours
@pytest.mark.parametrize("algebra", [R, C, H, M2R, CROSS], ids=str)
def test_a_bound_algebra_is_filled_in(name, algebra):
    shape, *args = OURS[name](algebra.dim)
    x = torch.randn(shape)
    bound = getattr(an.over(algebra).functional, name)(x, *args)
    assert torch.equal(bound, getattr(functional, name)(x, *args, algebra=algebra))
    assert an.over(algebra).functional.relu is F.relu


@pytest.mark.parametrize("algebra", [C, H, CROSS], ids=str)
@over_ours
def test_gradients_are_those_of_finite_differences(name, algebra):
    shape, *args = OURS[name](algebra.dim)
    x = torch.randn([min(n, 6 * algebra.dim) if k else 1 for k, n in enumerate(shape)], dtype=torch.float64)
    if name == "pixel_shuffle":
        x = torch.randn(1, 4 * algebra.dim, 2, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda x: getattr(functional, name)(x, *args, algebra=algebra), x.requires_grad_(), fast_mode=True
    )


@pytest.mark.parametrize("algebra", [C, M2R], ids=str)
def test_groups_scales_and_running_statistics_are_counted_in_tuples(algebra):
    x = torch.randn(2, 3 * algebra.dim, 5)
    tuples, channels = torch.ones(3), torch.zeros(3 * algebra.dim)
    for wrong, given in (("weight", (channels + 1, channels)), ("bias", (tuples, tuples))):
        for norm in (lambda *given: functional.group_norm(x, 3, *given, algebra=algebra),
                     lambda *given: functional.instance_norm(x, None, None, *given, algebra=algebra)):  # fmt: skip
            with pytest.raises(ValueError, match=f"{wrong} must hold one number for each of"):
                norm(*given)
    for grouped in (functional.group_norm, functional.channel_shuffle):
        with pytest.raises(ValueError, match=f"groups={3 * algebra.dim} must divide the number of tuples"):
            grouped(x, 3 * algebra.dim, algebra=algebra)
    with pytest.raises(ValueError, match="running_var must hold one number for each of 3 tuples"):
        functional.instance_norm(x, channels, channels, algebra=algebra)
    with pytest.raises(ValueError, match="use_input_stats=False needs both running_mean and running_var"):
        functional.instance_norm(x, channels, use_input_stats=False, algebra=algebra)
    with pytest.raises(ValueError, match="weight must hold one number for each of 3 tuples"):
        functional.rms_norm(x.mT, [3 * algebra.dim], channels, algebra=algebra)
    with pytest.raises(ValueError, match=f"normalized_shape is 5, which does not hold whole {algebra.name} tuples"):
        functional.rms_norm(x, [5], algebra=algebra)
