"""Runs models on example inputs and compares their outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from algebranets.conversion.inputs import does_not_run, example_inputs, preserved
from algebranets.nn.mode import evaluating


@dataclass(frozen=True)
class Call:
    """The arguments of a call of a model.

    Args:
        args: Positional arguments.
        kwargs: Arguments by name.

    >>> Call((torch.ones(2),)).run(nn.Identity())
    tensor([1., 1.])
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def run(self, model: nn.Module) -> Any:
        """Return the model's output in evaluation mode, without gradients.

        The model gets copies of the arguments, so that it may change them in place. The model's buffers stay as they
        are.

        Args:
            model: The model.
        """
        args, kwargs = deepcopy((self.args, dict(self.kwargs)))
        with preserved(model), evaluating(model), torch.no_grad():
            return model(*args, **kwargs)

    def expected(self, model: nn.Module) -> Any:
        """Return the output of a model that was given, or raise an error that says why it does not run.

        Args:
            model: The model.
        """
        name = type(model).__name__
        if any(parameter.is_meta for parameter in model.parameters()):
            raise ValueError(f"{name} has no numbers, because it is on the device 'meta': load its weights first.")
        try:
            return self.run(model)
        except Exception as error:  # whatever the model raises for a wrong input
            raise ValueError(does_not_run(model, self.args, self.kwargs, error)) from error

    def to(self, device: torch.device | str) -> Call:
        """Return the same call with its tensors on a device.

        Args:
            device: The device.
        """

        def moved(value: Any) -> Any:
            return value.to(device) if isinstance(value, Tensor) else value

        args, kwargs = torch.utils._pytree.tree_map(moved, (self.args, dict(self.kwargs)))
        return Call(args, kwargs)


def call_of(model: nn.Module, inputs: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> Call:
    """Return the inputs of a model: those given, those of its method ``example_inputs``, or a guess.

    The numbers of ``example_inputs`` are replaced by random ones, so that the outputs of different models differ. A
    language model of `algebranets.models` gets two sequences of tokens and no state.

    Args:
        model: The model.
        inputs: Positional inputs, which may be empty.
        kwargs: Inputs by name, or None.

    >>> import algebranets as an
    >>> call_of(an.models.create("gru_lm", algebra="C", hidden_size=4), (), None).args[0].shape
    torch.Size([2, 16])
    """
    if inputs or kwargs:
        return Call(inputs, kwargs or {})
    if not hasattr(type(model), "example_inputs"):
        try:
            return Call(*example_inputs(model))
        except ValueError as error:
            raise ValueError(
                f"{type(model).__name__} must be run once, and its inputs cannot be guessed: pass example inputs after "
                "the other arguments, or by name, as in kwargs={'input_ids': ids}."
            ) from error
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    generator = torch.Generator().manual_seed(0)
    if hasattr(type(model), "state_batch_axis"):
        tokens = torch.randint(int(model.vocab_size), (2, 16), generator=generator)  # type: ignore[arg-type]
        return Call((tokens.to(like.device),))

    def filled(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        return torch.randn(value.shape, generator=generator).to(like)

    made = model.example_inputs()  # type: ignore[operator]
    return Call(tuple(torch.utils._pytree.tree_map(filled, made)))


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield all tensors in a model's output, which may be nested tuples, lists, mappings and dataclasses.

    Args:
        value: The output.

    >>> len(list(tensors_in({"logits": torch.ones(2), "states": (torch.ones(1), None)})))
    2
    """
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors_in(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from tensors_in(part)
    elif is_dataclass(value) and not isinstance(value, type):
        for part in fields(value):
            yield from tensors_in(getattr(value, part.name, None))


def largest_error(actual: Any, expected: Any) -> float:
    """Return the largest difference of two outputs, relative to the largest number of each expected tensor.

    It is infinite if the shapes differ, or if one output has NaN or infinity at a place where the other has not.

    Args:
        actual: The output of one model.
        expected: The output of the other model.

    >>> largest_error(torch.tensor([1.0, 2.5]), torch.tensor([1.0, 2.0]))
    0.25
    """
    ours, theirs = list(tensors_in(actual)), list(tensors_in(expected))
    if not theirs:
        raise ValueError(
            f"the model's output has no tensor to compare: it is a {type(expected).__name__}. Return tensors, or "
            "tuples, lists, mappings or dataclasses of them."
        )
    if [x.shape for x in ours] != [x.shape for x in theirs]:
        return float("inf")
    return max(_error(x, y) for x, y in zip(ours, theirs, strict=True))


def _error(actual: Tensor, expected: Tensor) -> float:
    if not expected.numel():
        return 0.0
    wide = torch.complex128 if expected.is_complex() or actual.is_complex() else torch.float64
    x, y = actual.detach().to("cpu", wide), expected.detach().to("cpu", wide)
    same = (x == y) | (x.isnan() & y.isnan())
    difference = torch.where(same, 0.0, (x - y).abs()).max().item()
    if difference != difference:  # NaN in one of the two
        return float("inf")
    finite = y[y.isfinite()]
    size = finite.abs().max().item() if finite.numel() else 0.0
    return difference / size if size else difference


def tolerance_for(output: Any) -> float:
    """Return the largest error that rounding explains. It depends on the least precise dtype of an output.

    Args:
        output: The output of a model.

    >>> tolerance_for(torch.ones(1)) < 2e-3
    True
    """
    dtypes = [x.dtype for x in tensors_in(output) if x.is_floating_point() or x.is_complex()]
    return 4 * max((torch.finfo(dtype).eps for dtype in dtypes), default=0.0) ** 0.5


def check_equal(actual: Any, expected: Any, what: str) -> float:
    """Return the largest error of an output, or raise an error if rounding does not explain it.

    Args:
        actual: The output of the new model.
        expected: The output of the model that was given.
        what: What the error message calls the new model.
    """
    error, tolerance = largest_error(actual, expected), tolerance_for(expected)
    if not error <= tolerance:
        raise ValueError(
            f"{what} differs from the model by {error:.2g} of its largest output; rounding explains {tolerance:.2g}. "
            "If the model gives a different output at each call, make it deterministic in evaluation mode first. "
            "Otherwise please report this as a bug."
        )
    return error
