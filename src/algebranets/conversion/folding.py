"""`fold`, which folds batch norms into the layers before them and keeps their weights in the algebra."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import fusion, parametrize
from torch.utils._python_dispatch import TorchDispatchMode

from algebranets import product
from algebranets.algebra import Algebra
from algebranets.conversion.parts import planar_index
from algebranets.conversion.running import Call, call_of, check_equal, tensors_in
from algebranets.conversion.scaled import SCALED
from algebranets.nn.linear import Weighted
from algebranets.nn.weights import own_class

ModelT = TypeVar("ModelT", bound=nn.Module)

#: torch's layers that `torch.nn.utils.fusion` folds a batch norm into.
_REAL = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def fold(model: ModelT, *inputs: Any, kwargs: Mapping[str, Any] | None = None) -> ModelT:
    """Return a copy of a model in which batch norms are folded into the layers before them, for inference.

    The copy is in evaluation mode and computes the same up to rounding. A batch norm is folded if its input is the
    output of a linear layer or convolution that nothing else reads. The batch norm becomes `torch.nn.Identity`. The
    layer's weight stays in the algebra. A batch norm multiplies each channel by its own number, and in general a weight
    over an algebra cannot do that. So the layer gets a parameter ``scale`` with one number for each output channel, and
    computes ``scale * (w . x) + offset``. If the algebra allows it, the weight is multiplied instead, for example over
    R, or if the numbers of all components of a tuple are equal. Layers of torch.nn are folded as well.

    The model is run on the inputs to find which batch norm follows which layer, and the outputs of the result are
    compared with the model's. If nothing can be folded, an error is raised.

    Args:
        model: The model.
        inputs: Inputs of the model, by default those of its method ``example_inputs``, or a guess.
        kwargs: Further inputs, by name.

    >>> import torch, algebranets as an
    >>> model = an.nn.Sequential(an.nn.Conv2d(8, 16, 3, bias=False, algebra=an.H), torch.nn.BatchNorm2d(16))
    >>> fold(model, torch.randn(1, 8, 5, 5))
    Sequential(
      (0): Conv2d(8, 16, kernel_size=(3, 3), stride=(1, 1), algebra=H)
      (1): Identity()
    )
    """
    call = call_of(model, inputs, kwargs)
    copy = deepcopy(model).eval()
    expected = call.expected(model)
    pairs, reasons = _pairs(copy, call)
    if not pairs:
        raise ValueError(_why_nothing_is_folded(model, reasons))
    modules = dict(copy.named_modules(remove_duplicate=False))
    for layer_name, norm_name in pairs.items():
        layer, norm = modules[layer_name], modules[norm_name]
        assert isinstance(norm, _BatchNorm)
        _replace(copy, layer, _folded(layer, norm))
        _replace(copy, norm, nn.Identity().eval())
    check_equal(call.run(copy), expected, "the folded model")
    return copy


def _replace(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Replace a module by another one, under all of its names."""
    if old is new:
        return
    for parent in model.modules():
        for name, child in parent._modules.items():
            if child is old:
                parent._modules[name] = new


def _why_nothing_is_folded(model: nn.Module, reasons: Mapping[str, str]) -> str:
    name = type(model).__name__
    if not any(isinstance(module, _BatchNorm) for module in model.modules()):
        return f"{name} has no batch norm, so there is nothing to fold: use the model as it is."
    first = "; ".join(f"{norm}: {reason}" for norm, reason in list(reasons.items())[:5])
    more = f"; and {len(reasons) - 5} more" if len(reasons) > 5 else ""
    return f"no batch norm of {name} could be folded ({first}{more}). Use the model as it is."


# Which batch norm follows which layer ---------------------------------------------------------------------------------


@dataclass
class _Run(TorchDispatchMode):
    """Records the outputs of layers while a model runs, and what reads them."""

    #: The name of the layer and its output, by the output's id. The tensors are kept, so that ids are not reused.
    outputs: dict[int, tuple[str, Tensor]] = field(default_factory=dict)
    #: The layer whose output each batch norm read.
    read_by: dict[str, str] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    #: Layers whose output is read by something other than a batch norm.
    shared: set[str] = field(default_factory=set)
    #: Layers that were called with further arguments, such as ``activation``.
    unusual: set[str] = field(default_factory=set)
    #: Layers whose channels are not on axis 1, the axis that a batch norm normalizes.
    elsewhere: set[str] = field(default_factory=set)
    inside: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.inside:
            for tensor in tensors_in([args, kwargs or {}]):
                if (found := self.outputs.get(id(tensor))) is not None:
                    self.shared.add(found[0])
        return func(*args, **(kwargs or {}))


@contextmanager
def _listening(model: nn.Module, run: _Run) -> Iterator[None]:
    """Record in ``run`` what layers return and what batch norms read."""

    def after_layer(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            run.calls[name] += 1
            if len(args) != 1 or kwargs:
                run.unusual.add(name)
            if isinstance(output, Tensor):
                run.outputs[id(output)] = name, output
                if output.dim() - _num_spatial(module) != 2:
                    run.elsewhere.add(name)

        return hook

    def before_norm(name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, args: Any) -> None:
            run.calls[name] += 1
            run.inside = name
            found = run.outputs.get(id(args[0])) if args else None
            if found is not None:
                run.read_by[name] = found[0]

        return hook

    def after_norm(*_: Any) -> None:
        run.inside = ""

    handles = []
    for name, module in model.named_modules():
        if _takes_fold(module):
            handles.append(module.register_forward_hook(after_layer(name), with_kwargs=True))
        elif isinstance(module, _BatchNorm):
            handles.append(module.register_forward_pre_hook(before_norm(name)))
            handles.append(module.register_forward_hook(after_norm))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _takes_fold(module: nn.Module) -> bool:
    kind = type(module).__bases__[0] if parametrize.is_parametrized(module) else type(module)
    return kind in SCALED or kind in _REAL


def _num_spatial(layer: nn.Module) -> int:
    """The number of axes after the channel axis, in a layer's output."""
    if isinstance(layer, Weighted):
        return getattr(layer, "num_axes", 0)
    return layer.weight.dim() - 2  # type: ignore[operator]


def _pairs(model: nn.Module, call: Call) -> tuple[dict[str, str], dict[str, str]]:
    """Return the batch norm to fold into each layer, and why each other batch norm is not folded."""
    hooked = {name for name, module in model.named_modules() if _has_hooks(module)}
    run = _Run()
    with _listening(model, run), run:
        output = call.run(model)
    returned = {run.outputs[id(tensor)][0] for tensor in tensors_in(output) if id(tensor) in run.outputs}
    pairs: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for name, module in model.named_modules():
        if not isinstance(module, _BatchNorm):
            continue
        layer = run.read_by.get(name, "")
        problems = {
            "it was not called": not run.calls[name],
            "it is called more than once": run.calls[name] > 1,
            "it has no running statistics": module.running_mean is None or module.running_var is None,
            "it follows no linear layer or convolution": not layer,
            "it has hooks": name in hooked,
            f"the layer before it, {layer}, has hooks": layer in hooked,
            f"the layer before it, {layer}, is called more than once": run.calls[layer] > 1,
            f"the layer before it, {layer}, is called with further arguments": layer in run.unusual,
            f"the channels of {layer} are not on axis 1": layer in run.elsewhere,
            f"something else reads the output of {layer}": layer in run.shared or layer in returned,
            f"the output of {layer} is read by another batch norm": list(run.read_by.values()).count(layer) > 1,
        }
        found = [problem for problem, holds in problems.items() if holds]
        if found:
            reasons[name] = found[0]
        else:
            pairs[layer] = name
    return pairs, reasons


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


# The folded layers ----------------------------------------------------------------------------------------------------


@torch.no_grad()
def _folded(layer: nn.Module, norm: _BatchNorm) -> Any:
    """Return a layer that computes ``norm(layer(x))``. Parametrizations of the layer's weights are removed."""
    own_class(layer)
    for name in list(getattr(layer, "parametrizations", {})):
        parametrize.remove_parametrizations(layer, name, leave_parametrized=True)
    if not isinstance(layer, Weighted):
        return _folded_real(layer, norm)
    scale, offset = _affine(norm)
    if layer.bias is not None:
        index, bias = _index(layer), layer.bias
        offset = offset + scale * (bias if index is None else torch.empty_like(bias).index_copy_(0, index, bias))
    return _scaled(layer, scale, offset)


def _affine(norm: _BatchNorm) -> tuple[Tensor, Tensor]:
    """The factor of each channel, and the number that is added to it."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = (norm.running_var + norm.eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight
    offset = -norm.running_mean * scale
    if norm.bias is not None:
        offset = offset + norm.bias
    return scale, offset


def _folded_real(layer: nn.Module, norm: _BatchNorm) -> nn.Module:
    is_transposed = isinstance(layer, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d)
    made: nn.Module
    if isinstance(layer, nn.Linear):
        made = fusion.fuse_linear_bn_eval(layer, norm)
    elif is_transposed and getattr(layer, "groups", 1) > 1:  # torch's function has the factors of all groups in one row
        made = _folded_groups(layer, norm)
    else:
        made = fusion.fuse_conv_bn_eval(layer, norm, is_transposed)  # type: ignore[type-var]
    return made


def _folded_groups(layer: Any, norm: _BatchNorm) -> Any:
    """A transposed convolution with groups, whose weight is (in, out of one group, ...)."""
    scale, offset = _affine(norm)
    factors = scale.view(layer.groups, -1).repeat_interleave(len(layer.weight) // layer.groups, dim=0)
    weight = layer.weight * factors.view(*factors.shape, *[1] * (layer.weight.dim() - 2))
    bias = offset if layer.bias is None else offset + scale * layer.bias
    layer.weight = nn.Parameter(weight, layer.weight.requires_grad)
    layer.bias = nn.Parameter(bias, layer.weight.requires_grad)
    return layer


def _index(layer: Any) -> Tensor | None:
    """The position on the model's axis of each planar output channel, or None if the axes are the same."""
    parts = getattr(layer, "out_parts", None)
    return None if parts is None else torch.tensor(planar_index(parts, layer.algebra), device=layer.weight.device)


def _scaled(layer: Any, scale: Tensor, offset: Tensor) -> Any:
    """Multiply a layer's weight by ``scale`` if the algebra allows it, else give the layer a vector ``scale``.

    ``scale`` and ``offset`` are in the order of the model's axis.
    """
    index = _index(layer)
    planar = scale if index is None else scale[index]
    components = product.tuples(planar, layer.algebra)
    if not all(components[i].equal(components[k]) for i, k in bound_components(layer.algebra)):
        layer.__class__ = SCALED[type(layer)]
        layer.bias = None
        layer.scale, layer.offset = nn.Parameter(scale), nn.Parameter(offset)
        return layer
    (described,) = layer.algebra_weights()
    tuples = described.tuples(layer.weight)
    groups = getattr(layer, "groups", 1)
    if layer.transposed:  # (component, in, out of one group, ...)
        factors = components.unflatten(1, (groups, -1)).repeat_interleave(tuples.shape[1] // groups, dim=1)
    else:
        factors = components[:, :, None]
    factors = factors.reshape(*factors.shape, *[1] * (tuples.dim() - 3))
    layer.weight = nn.Parameter(described.from_tuples(tuples * factors), requires_grad=layer.weight.requires_grad)
    layer.bias = nn.Parameter(offset if index is None else offset[index])
    return layer


@cache
def bound_components(algebra: Algebra) -> tuple[tuple[int, int], ...]:
    """Return the pairs of components (i, k) that must have equal factors, so that a weight can absorb the factors.

    Multiplying each component k of the output by d_k is the same as multiplying each component i of the weight by d_i,
    if d_i = d_k for all i and k such that component i of the weight contributes to component k of the output.

    Args:
        algebra: The algebra.

    >>> import algebranets as an
    >>> bound_components(an.C), bound_components(an.M2R)  # all components, and those of each row of a matrix
    (((0, 1), (1, 0)), ((0, 1), (1, 0), (2, 3), (3, 2)))
    """
    return tuple(sorted({(i, k) for i, _, k, _ in algebra.terms if i != k}))
