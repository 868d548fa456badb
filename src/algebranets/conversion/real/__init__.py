"""`to_real`, which makes an equivalent model of torch.nn's layers that runs without algebranets."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from types import FrameType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import PackedSequence

from algebranets.conversion.inputs import preserved
from algebranets.conversion.parts import Parted
from algebranets.conversion.peers import WRAPPERS
from algebranets.conversion.real import attention, channels, graph, layers, recurrent
from algebranets.conversion.real.modules import traced
from algebranets.conversion.real.weights import RealParameters
from algebranets.conversion.running import Call, call_of, check_equal
from algebranets.conversion.scaled import Scaled
from algebranets.nn.mode import evaluating
from algebranets.nn.weights import own_class

#: The function that makes the torch.nn layer for each type of layer with weights over an algebra.
WEIGHTED: dict[type, layers.Twin] = {**layers.TWINS, **attention.TWINS, **recurrent.TWINS}

#: The function that makes the plain torch version for each type of layer of `algebranets.nn` that has one.
TWINS: dict[type, layers.Twin] = {
    **WEIGHTED,
    **channels.TWINS,
    **{wrapper: lambda module, _: traced(module, type(module).__name__) for wrapper in WRAPPERS},
}


def to_real(model: nn.Module, *inputs: Any, kwargs: Mapping[str, Any] | None = None) -> nn.Module:
    """Return an equivalent plain torch model, which can be saved, loaded and run without algebranets.

    Each layer of `algebranets.nn` becomes torch.nn's layer with the expanded, real weight. The model's class, its code
    and the names of its layers stay. Layers that torch.nn does not have, such as `TupleNorm`, become small graphs of
    torch's functions. A model of `algebranets.models`, or a model whose code calls functions of algebranets, becomes
    one graph as a whole, a `torch.fx.GraphModule` without methods other than ``forward``. Pruned and otherwise
    parametrized weights become ordinary weights with their current values. Shared weights stay shared. Norms with
    running statistics of tuples (`Whitening2d`, `InstanceNorm2d`) no longer update these statistics.

    The model is run on the inputs to check that it calls no code of algebranets, and the outputs are compared. If no
    inputs are given and none can be guessed, only the layers are checked, and no outputs are compared.

    Args:
        model: The model. It is not changed.
        inputs: Inputs of the model, by default those of its method ``example_inputs``, or a guess.
        kwargs: Further inputs, by name.

    >>> import torch, algebranets as an
    >>> nn = an.over("M2R")
    >>> to_real(nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 4)))
    Sequential(
      (0): Linear(in_features=8, out_features=12, bias=True)
      (1): ReLU()
      (2): Linear(in_features=12, out_features=4, bias=True)
    )
    """
    if type(model).__module__ == "algebranets.conversion.hub":  # a `PretrainedModel`, which holds the model
        return to_real(model.model, *inputs, kwargs=kwargs)  # type: ignore[arg-type]
    if not traces(model):
        raise ValueError(f"{type(model).__name__} has no layer of algebranets.nn: it is a plain torch model already.")
    for name, parameter in model.named_parameters():
        if isinstance(parameter, UninitializedParameter):
            raise ValueError(f"{name} has no numbers yet: run the model once on an input first.")
    try:
        call: Call | None = call_of(model, inputs, kwargs)
    except ValueError:  # the inputs cannot be guessed
        call = None
    with _noting_packed(model) as packed:
        expected = None if call is None else call.expected(model)
    made = _without_attributes(_replaced(model, TWINS, packed))
    left = traces(made) or ([] if call is None else _calls_of_ours(made, call))
    if left:
        if call is None:
            raise ValueError(
                f"parts of {type(model).__name__} have no plain torch version of their own ({_listed(left)}), so the "
                "whole model must be traced: write to_real(model, x) with an input x of the shape that the model takes."
            )
        made = _as_graph(model, call, left, packed)
    if call is not None:
        check_equal(call.run(made), expected, "the plain torch model")
    return made


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


# Layers ---------------------------------------------------------------------------------------------------------------


@contextmanager
def _noting_packed(model: nn.Module) -> Iterator[set[str]]:
    """Yield the names of the modules that are called with a packed sequence."""
    packed: set[str] = set()
    handles = []
    for name, module in model.named_modules():

        def note(_: nn.Module, args: tuple[Any, ...], name: str = name) -> None:
            if args and isinstance(args[0], PackedSequence):
                packed.add(name)

        handles.append(module.register_forward_pre_hook(note))
    try:
        yield packed
    finally:
        for handle in handles:
            handle.remove()


def _replaced(model: nn.Module, twins: Mapping[type, layers.Twin], packed: set[str]) -> nn.Module:
    """Return a copy of a model in which each layer that ``twins`` has a function for is replaced by a plain one.

    ``packed`` holds the names of the modules that read packed sequences.
    """
    copy = deepcopy(model)
    training = {module: module.training for module in copy.modules()}
    copy.eval()  # reading some parametrized weights changes their state in training mode
    done: dict[nn.Module, nn.Module] = {}
    made = _twin(copy, "", twins, RealParameters({copy.get_submodule(name) for name in packed}), done)
    for module, was in training.items():
        if done[module] is not module:
            done[module].train(was)
        module.training = was
    return made


def _twin(
    module: nn.Module,
    path: str,
    twins: Mapping[type, layers.Twin],
    real: RealParameters,
    done: dict[nn.Module, nn.Module],
) -> nn.Module:
    """Return the plain layer for a module, or the module itself. Its children are replaced first."""
    if module not in done:
        for name, child in module._modules.items():
            if child is not None:
                module._modules[name] = _twin(child, f"{path}.{name}" if path else name, twins, real, done)
        make = twins.get(_kind(module))
        made = None
        if make is not None:
            _check(module, path)
            with suppress(torch.fx.proxy.TraceError):  # a function of the user, such as TupleGate's
                made = make(module, real)
        if made is None:
            _bake(module)
            made = module
        done[module] = made
    return done[module]


def _kind(module: nn.Module) -> type:
    """The class of `algebranets.nn` whose forward a module uses, or its own class if that defines a forward."""
    kind: type = type(module)
    if parametrize.is_parametrized(module) or isinstance(module, Parted | Scaled):
        bases = [cls for cls in kind.__mro__ if cls in TWINS]
        own = [cls for cls in kind.__mro__ if "forward" in vars(cls) and not issubclass(cls, Parted | Scaled)]
        return bases[0] if bases and issubclass(bases[0], own[0]) else kind
    return kind


def _check(module: nn.Module, path: str) -> None:
    """Raise an error if a layer has hooks, because its replacement would not have them."""
    name = f"{path or 'the model'} ({type(module).__name__})"
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
        raise ValueError(f"{name} has hooks, which its plain torch version would not have: remove them first.")


def _bake(module: nn.Module) -> None:
    """Remove parametrizations of ours, such as a pruner's masks, and keep the current values of the weights."""
    names = [
        name
        for name, steps in getattr(module, "parametrizations", {}).items()
        if any(is_ours(cls) for step in steps for cls in type(step).__mro__)
    ]
    if names:
        own_class(module)
        for name in names:
            parametrize.remove_parametrizations(module, name, leave_parametrized=True)


def _without_attributes(model: nn.Module) -> nn.Module:
    """Delete attributes whose values are objects of ours, such as an algebra or a report, from torch's modules."""
    for module in model.modules():
        if not _is_our_module(module):
            for name, value in list(vars(module).items()):
                if is_ours(type(value)):
                    delattr(module, name)
    return model


# Code of ours that is left --------------------------------------------------------------------------------------------


def is_ours(value: Any) -> bool:
    """Whether a class or function belongs to algebranets.

    Args:
        value: A class or function.
    """
    return f"{getattr(value, '__module__', '')}.".startswith("algebranets.")


def _is_our_module(module: nn.Module) -> bool:
    return any(is_ours(cls) for cls in type(module).__mro__)


def traces(model: nn.Module) -> list[str]:
    """Return the names of the modules, classes and functions of ours that are needed to load a model.

    Args:
        model: The model.

    >>> import algebranets as an
    >>> traces(an.nn.Linear(8, 8, algebra=an.H)), traces(nn.Linear(8, 8))
    (['the model (Linear)'], [])
    """
    found = [f"{n or 'the model'} ({type(m).__name__})" for n, m in model.named_modules() if _is_our_module(m)]
    return found or _Scan().names(model)


class _Scan(pickle.Pickler):
    """Finds the classes and functions of ours that a pickled model refers to."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())
        self.found: list[str] = []

    def names(self, model: nn.Module) -> list[str]:
        try:
            self.dump(model)
        except Exception:  # a model that cannot be saved, for example one with a lambda: there is nothing to load
            return self.found
        return self.found

    def persistent_id(self, value: Any) -> str | None:
        return "tensor" if isinstance(value, Tensor) else None

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type | FunctionType) and is_ours(value):
            self.found.append(f"{value.__module__}.{value.__qualname__}")
        return NotImplemented


def _calls_of_ours(model: nn.Module, call: Call) -> list[str]:
    """The functions of ours that run when a model is called."""
    found: list[str] = []

    def record(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and f"{frame.f_globals.get('__name__', '')}.".startswith("algebranets."):
            found.append(f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}")

    before = sys.getprofile()
    args, kwargs = deepcopy((call.args, dict(call.kwargs)))
    with preserved(model), evaluating(model), torch.no_grad():
        try:
            sys.setprofile(record)
            model(*args, **kwargs)
        except Exception as error:  # for example our Linear's argument `activation`, which torch's Linear lacks
            found.append(f"{type(error).__name__}: {error}")
        finally:
            sys.setprofile(before)
    return list(dict.fromkeys(found))


# Graphs ---------------------------------------------------------------------------------------------------------------


class ActivatedLinear(nn.Linear):
    """`torch.nn.Linear` with the argument ``activation`` of `algebranets.nn.Linear`, for models of ours."""

    def forward(self, x: Tensor, activation: str | None = None) -> Tensor:
        y = super().forward(x)
        return y if activation is None else getattr(torch.nn.functional, activation)(y)


def _as_graph(model: nn.Module, call: Call, left: list[str], packed: set[str]) -> nn.Module:
    """Return a model as one graph, with real weights."""
    made = _replaced(model, WEIGHTED, packed)
    for module in made.modules():
        if type(module) is nn.Linear:
            module.__class__ = ActivatedLinear
    try:
        return graph.graph(made, call)
    except Exception as error:
        raise ValueError(
            f"{type(model).__name__} cannot be made plain torch: {_listed(left)} must be traced by torch.export, which "
            f"failed: {graph.reason(error)}."
        ) from error
