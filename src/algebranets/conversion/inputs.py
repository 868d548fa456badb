"""Example inputs to run a model with: those that were given, or a guess."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from algebranets.nn.mode import evaluating

#: The arguments of one call of a model.
Arguments = tuple[tuple[Any, ...], dict[str, Any]]

#: The height and width of a guessed image, and the length of a guessed sequence.
IMAGE_SIZE, NUM_STEPS = 224, 16


def example_inputs(model: nn.Module, inputs: Any = None) -> Arguments:
    """Return the arguments to run a model with.

    Without ``inputs``, they are guessed: from ``model.example_inputs()``, from a transformers model's configuration,
    from a timm model's input size, or from the first layer. A first convolution gets images of 224 x 224 pixels, and a
    first embedding gets sequences of 16 indices.

    Args:
        model: The model.
        inputs: A tensor, a tuple of arguments, or a mapping of named arguments. None for a guess.

    >>> args, kwargs = example_inputs(nn.Sequential(nn.Linear(3, 8), nn.ReLU()))
    >>> [tuple(x.shape) for x in args], kwargs
    ([(1, 3)], {})
    """
    if isinstance(inputs, Tensor):
        return (inputs,), {}
    if isinstance(inputs, tuple):
        return inputs, {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if inputs is not None:
        raise ValueError(
            "inputs must be a tensor, a tuple of arguments or a dict of named arguments; "
            f"got a {type(inputs).__name__}."
        )
    guessed = _guess(model)
    try:
        with preserved(model), evaluating(model), torch.no_grad():
            model(*guessed[0], **guessed[1])
    except Exception as error:  # whatever the model raises for a wrong input
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"{type(model).__name__} does not run on a guessed input, {describe(*guessed)} ({reason:.200}): pass an "
            "example, as in inputs=torch.randn(1, 3, 224, 224) or inputs={'input_ids': ids}."
        ) from error
    return guessed


@contextmanager
def preserved(model: nn.Module) -> Iterator[None]:
    """Give a model's buffers and attributes their values back afterwards, because a run may change them.

    A list or another object that a run changes in place stays changed.

    Args:
        model: The model. Its modules, parameters and hooks are not touched.

    >>> model = nn.BatchNorm1d(3)
    >>> with preserved(model):
    ...     _ = model(torch.randn(2, 3))
    >>> model.running_mean
    tensor([0., 0., 0.])
    """
    modules = [module for module in model.modules() if not isinstance(module, torch.jit.ScriptModule)]
    attributes = [(dict(vars(module)), dict(module._buffers)) for module in modules]
    values = [(buffer, buffer.detach().clone()) for buffer in model.buffers() if not buffer.is_inference()]
    try:
        yield
    finally:
        for module, (own, buffers) in zip(modules, attributes, strict=True):
            for now, then in ((vars(module), own), (module._buffers, buffers)):
                now.clear()
                now.update(then)
        with torch.no_grad():
            for buffer, value in values:
                buffer.copy_(value)


def does_not_run(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], error: Exception) -> str:
    """Return the message for a model that fails on the inputs that were given.

    Args:
        model: The model.
        args, kwargs: The arguments of the call.
        error: What the model raised.

    >>> does_not_run(nn.Linear(3, 8), (torch.ones(1, 2),), {}, RuntimeError("shapes"))
    'Linear does not run on the input (1, 2) (shapes): pass inputs that the model takes.'
    """
    reason = " ".join(str(error).split()) or type(error).__name__
    return (
        f"{type(model).__name__} does not run on the input {describe(args, kwargs)} ({reason:.300}): pass inputs that "
        "the model takes."
    )


def fresh(arguments: Arguments) -> Arguments:
    """Return copies of the arguments of a call, because a model may change them.

    Args:
        arguments: The arguments.
    """

    def copied(value: Any) -> Any:
        return value.detach().clone() if isinstance(value, Tensor) else deepcopy(value)

    return tree_map(copied, arguments)


def describe(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return the shapes of a call's arguments, in words.

    Args:
        args, kwargs: The arguments.

    >>> describe((torch.ones(1, 3),), {"mask": None})
    '(1, 3), mask=None'
    """
    words = [_shape(value) for value in args] + [f"{name}={_shape(value)}" for name, value in kwargs.items()]
    return ", ".join(words) or "no arguments"


def _shape(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else f"{value!r:.40}"


def _guess(model: Any) -> Arguments:
    if hasattr(model, "example_inputs"):
        return tuple(model.example_inputs()), {}
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    if hasattr(model, "dummy_inputs") and hasattr(model, "config"):
        return (), _for_transformers(model, like)
    size = _image_size(model)
    return (_for_first_layer(model, like) if size is None else _normal(like, 1, *size),), {}


def _image_size(model: Any) -> tuple[int, ...] | None:
    """The (channels, height, width) of a timm model's images, or None for other models."""
    described = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    if not isinstance(described, Mapping) or not described.get("input_size"):
        return None
    size = tuple(described["input_size"])
    patches = getattr(getattr(model, "patch_embed", None), "img_size", None)  # the size that the model was made with
    channels = getattr(model, "in_chans", None) or size[0]
    return (channels, *patches) if isinstance(patches, tuple) else (channels, *size[1:])


def _for_transformers(model: Any, like: Tensor) -> dict[str, Tensor]:
    """The inputs of a transformers model: its own example tokens, or images, spectrograms or audio of its size."""
    config, main = model.config, getattr(model, "main_input_name", "input_ids")
    steps = torch.zeros(1, NUM_STEPS, dtype=torch.long, device=like.device)
    if main == "pixel_values":
        size = getattr(config, "image_size", IMAGE_SIZE)
        height_width = (size, size) if isinstance(size, int) else tuple(size)
        found = {"pixel_values": _normal(like, 1, getattr(config, "num_channels", 3), *height_width)}
    elif main == "input_features" and hasattr(config, "num_mel_bins"):
        length = 2 * getattr(config, "max_source_positions", NUM_STEPS)
        found = {"input_features": _normal(like, 1, config.num_mel_bins, length)}
    elif main == "input_values":
        found = {"input_values": _normal(like, 1, 16_000)}
    else:
        return {name: value.to(like.device) for name, value in model.dummy_inputs.items() if isinstance(value, Tensor)}
    return {**found, "decoder_input_ids": steps} if getattr(config, "is_encoder_decoder", False) else found


def _for_first_layer(model: nn.Module, like: Tensor) -> Tensor:
    for module in model.modules():
        for kind, make in _BY_LAYER:
            if isinstance(module, kind):
                return make(module, like, _side(model))
    raise ValueError(f"{type(model).__name__} has no layer from which to guess its inputs: pass an example, inputs=...")


def _side(model: nn.Module) -> int:
    """The height and width of an image: 224, or the attribute ``image_size`` that some models have."""
    size = getattr(model, "image_size", IMAGE_SIZE)
    return size if isinstance(size, int) else IMAGE_SIZE


def _normal(like: Tensor, *shape: int) -> Tensor:
    return torch.zeros(shape, dtype=like.dtype, device=like.device).normal_(generator=_generator(like))


def _generator(like: Tensor) -> torch.Generator | None:
    """A separate generator, so that a guess does not change the state of torch's global generator."""
    return None if like.is_meta else torch.Generator(like.device).manual_seed(0)


def _steps(module: Any, like: Tensor, _: int) -> Tensor:
    return torch.arange(min(NUM_STEPS, module.num_embeddings), device=like.device)[None]


def _sequence(module: Any, like: Tensor, _: int) -> Tensor:
    return _normal(like, *((1, NUM_STEPS) if module.batch_first else (NUM_STEPS, 1)), module.input_size)


#: How to make the input of a model whose first layer is of each type. The last argument is the size of images.
_BY_LAYER: tuple[tuple[Any, Callable[[Any, Tensor, int], Tensor]], ...] = (
    (nn.Embedding | nn.EmbeddingBag, _steps),
    (nn.Linear, lambda m, like, _: _normal(like, 1, m.in_features)),
    (nn.Conv1d | nn.ConvTranspose1d, lambda m, like, side: _normal(like, 1, m.in_channels, side)),
    (nn.Conv2d | nn.ConvTranspose2d, lambda m, like, side: _normal(like, 1, m.in_channels, side, side)),
    (nn.Conv3d | nn.ConvTranspose3d, lambda m, like, _: _normal(like, 1, m.in_channels, *[NUM_STEPS] * 3)),
    (nn.RNNBase, _sequence),
    (nn.RNNCellBase, lambda m, like, _: _normal(like, 1, m.input_size)),
)
