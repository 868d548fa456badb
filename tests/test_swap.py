"""Networks in plain torch become AlgebraNets with one changed line and with nn.cat and nn.chunk.

Their source is in tests/torch_sources.
"""

import re
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn as tnn

import algebranets as an
from algebranets.algebra import M2R, C, H
from laws import times

SOURCES = {path.stem: path for path in sorted((Path(__file__).parent / "torch_sources").glob("*.py"))}
#: The line that is replaced in each source, and the functions that are replaced because they act on channels.
LINE, FUNCTIONS = "from torch import nn\n", r"torch\.(cat|chunk)\("


def source(name, algebra=None, functions=True):
    """Load a source as it is, or with its one line and, unless ``functions`` is false, its functions replaced."""
    text = SOURCES[name].read_text()
    if algebra is not None:
        assert text.count(LINE) == 1
        text = text.replace(LINE, "import algebranets\nnn = algebranets.over(ALGEBRA)\n")
        text = re.sub(FUNCTIONS, r"nn.\1(", text) if functions else text
    module = ModuleType(name)
    module.ALGEBRA = algebra
    exec(compile(text, str(SOURCES[name]), "exec"), vars(module))
    return module


class Sum(tnn.Module):
    def forward(self, gate, value):
        return gate + value


def linear_part(model):
    """Replace activations and norms by the identity, gates by sums and maxima by averages."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, tnn.ReLU | tnn.BatchNorm2d | an.nn.RMSNorm):
                setattr(module, name, tnn.Identity())
            elif isinstance(child, tnn.MaxPool2d):
                setattr(module, name, tnn.AvgPool2d(child.kernel_size, child.stride, child.padding))
            elif type(child).__name__ == "Gate":
                setattr(module, name, Sum())
    return model


def channel_axis(x):
    """1 for images, -1 for sequences and features."""
    return 1 if x.dim() == 4 else -1


def right_multiplication_error(module, algebra):
    """The relative difference of f(x . q) and f(x) . q, where f is the linear part of the module's network."""
    torch.manual_seed(0)
    model = linear_part(module.make()).double().eval()
    x = module.example().double()
    q = torch.randn(algebra.dim, dtype=torch.float64)
    q /= q.norm()  # attention scores are inner products, which only unit quaternions preserve
    with torch.no_grad():
        y = model(x)
        first = model(times(x, q, algebra, channel_axis(x)))
        then = times(y, q, algebra, channel_axis(y))
    return ((first - then).norm() / then.norm()).item()


@pytest.mark.parametrize("name", SOURCES)
def test_the_swapped_network_commutes_with_multiplication_on_the_right(name):
    assert right_multiplication_error(source(name, H), H) < 1e-10


@pytest.mark.parametrize("name", sorted({*SOURCES} - {"swiglu"}))  # other algebras do not preserve attention scores
@pytest.mark.parametrize("algebra", [C, M2R], ids=str)
def test_the_swapped_network_commutes_over_other_associative_algebras(name, algebra):
    assert right_multiplication_error(source(name, algebra), algebra) < 1e-10


@pytest.mark.parametrize("name", SOURCES)
def test_torch_cat_and_chunk_would_take_tuples_apart(name):
    assert right_multiplication_error(source(name, H, functions=False), H) > 0.1


@pytest.mark.parametrize("name", SOURCES)
def test_over_r_the_swapped_network_is_torchs(name):
    module, real = source(name, "R"), source(name)
    torch.manual_seed(0)
    ours, theirs = module.make(), real.make()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    x = real.example()
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


@pytest.mark.parametrize("name", SOURCES)
def test_the_swapped_network_has_a_quarter_of_the_weights_and_learns(name):
    ours, theirs, x = source(name, "H").make(), source(name).make(), source(name).example()
    convolved = "branch.3.weight"  # ShuffleNet's depthwise convolution has as many weights over H as over R
    count = [
        sum(p.numel() for path, p in model.named_parameters() if p.dim() > 1 and path != convolved)
        for model in (ours, theirs)
    ]
    assert count[0] * 4 == count[1]
    y = ours(x)
    assert y.shape == theirs(x).shape
    y.square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in ours.parameters())


def test_groups_of_a_depthwise_convolution_are_written_as_in_torch():
    conv = an.nn.Conv2d(16, 32, 3, groups=16, algebra=H)
    assert conv.groups == 4
    assert conv.weight_tuples.shape == (4, 8, 1, 3, 3)  # (component, out, in of a group, kernel)
    assert an.nn.ConvTranspose1d(16, 32, 3, groups=16, algebra=H).groups == 4
    assert an.nn.Conv2d(16, 32, 3, groups=16, algebra=an.R).groups == 16
