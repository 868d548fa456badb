"""`create`, which makes a model of timm, torchvision, transformers or algebranets by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from inspect import signature
from typing import Any

from torch import nn

from algebranets import checks, models
from algebranets.algebra import Algebra

#: Options that may download files, load other weights or run downloaded code. They are refused at any depth.
_REFUSED = {
    "timm": {"pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir"},
    "torchvision": {"weights", "weights_backbone", "pretrained", "pretrained_backbone"},
    "transformers": {"auto_map", "quantization_config", "trust_remote_code", "use_pretrained_backbone"},
    "algebranets": {"pretrained"},
}


def create(source: str, **options: Any) -> nn.Module:
    """Create a model with random weights from the name of a library and the name of a model there.

    Only the four libraries below are imported, and nothing is downloaded. So it is safe to pass a name from a
    downloaded file.

    Args:
        source: One of

            - "timm:NAME", for `timm.create_model`,
            - "torchvision:NAME", for `torchvision.models.get_model`,
            - "transformers:CLASS", the name of a model class. The options are those of its configuration.
            - "algebranets:NAME", for `algebranets.models.create`. The option ``algebra`` is required: a name, or a
              table from `Algebra.to_dict`.
        options: The options of the model, as plain JSON data: numbers, text, True, False, None, and lists and dicts of
            them. Tuples become lists.

    >>> model = create("algebranets:cifar_resnet", algebra="M2R", num_blocks=1)
    >>> model.algebra.name
    'M2R'
    >>> create("algebranets:resnet81", algebra="M2R")
    Traceback (most recent call last):
    ValueError: 'algebranets:resnet81' is not a model of algebranets. Did you mean 'algebranets:resnet18'?
    """
    library, name = split(source)
    given = {key: plain(f"{source}'s option {key!r}", value) for key, value in options.items()}
    _refuse_downloads(source, library, given)
    make = _MAKERS[library](source, name, given)
    try:
        return make()
    except Exception as error:  # the library may raise any error for wrong options
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{source} cannot be made with the options {given!s:.200}: {reason:.300}") from error


def split(source: Any) -> tuple[str, str]:
    """Return the library and the name in "LIBRARY:NAME".

    Args:
        source: The text to split. The library must be one that `create` knows.

    >>> split("timm:resnet18")
    ('timm', 'resnet18')
    """
    if not isinstance(source, str) or ":" not in source:
        raise ValueError(f"source must be 'LIBRARY:NAME', such as 'timm:resnet18'; got {source!r:.80}.")
    library, _, name = source.partition(":")
    return checks.one_of("source's library", library, _MAKERS), name


def plain(name: str, value: Any) -> Any:
    """Check that a value is plain JSON data, and return it with lists instead of tuples.

    Args:
        name: What error messages call the value.
        value: The value: None, a bool, text, a finite number, or lists and dicts of them.

    >>> plain("size", (32, 32))
    [32, 32]
    >>> plain("dtype", {"of": int})
    Traceback (most recent call last):
    ValueError: dtype.of must be plain JSON data (numbers, text, True, False, None, lists and dicts); got <class 'int'>.
    """
    if value is None or isinstance(value, bool | str | int) or (isinstance(value, float) and abs(value) < float("inf")):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(f"{name}.{key}", item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [plain(name, item) for item in value]
    raise ValueError(
        f"{name} must be plain JSON data (numbers, text, True, False, None, lists and dicts); got {value!r:.80}."
    )


def library(name: str, purpose: str) -> Any:
    """Import an optional library, or raise an error that says what to install.

    Args:
        name: The library's name, which is also its name for pip.
        purpose: What needs the library. The error message starts with it.

    >>> library("no_such_library", "An example")
    Traceback (most recent call last):
    ValueError: An example needs no_such_library, which is not installed: run `pip install no_such_library`.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:  # the library is installed, but one that it needs is not
            raise ValueError(f"{purpose} needs {name}, which cannot be imported: {error}.") from error
        raise ValueError(f"{purpose} needs {name}, which is not installed: run `pip install {name}`.") from None


def _refuse_downloads(source: str, library: str, options: Any) -> None:
    if isinstance(options, list):
        for option in options:
            _refuse_downloads(source, library, option)
    if not isinstance(options, dict):
        return
    for name, value in options.items():
        if name in _REFUSED[library]:
            raise ValueError(
                f"{source} must not have the option {name!r}: models are made with random weights and without "
                "downloads. Load weights into the model afterwards."
            )
        may_name_hub = "implementation" in name or name in ("architecture", "backbone")
        if library == "transformers" and may_name_hub and any(mark in str(value) for mark in "/@:|"):
            raise ValueError(
                f"{source}'s option {name!r} must name a part of transformers or timm, such as 'sdpa', and "
                f"nothing on the hub; got {value!r:.80}."
            )
        _refuse_downloads(source, library, value)


def _timm(source: str, name: str, options: dict[str, Any]) -> Callable[[], nn.Module]:
    timm = library("timm", source)
    if not timm.is_model(name) or any(mark in name for mark in ":/\\"):
        raise _unknown(source, "timm", name, timm.list_models())
    return lambda: timm.create_model(name, pretrained=False, **options)


def _torchvision(source: str, name: str, options: dict[str, Any]) -> Callable[[], nn.Module]:
    vision = library("torchvision", source).models
    known = vision.list_models()
    if name not in known:
        raise _unknown(source, "torchvision", name, known)
    weights = {"weights": None}
    if "weights_backbone" in signature(vision.get_model_builder(name)).parameters:  # torchvision would download them
        weights["weights_backbone"] = None
    return lambda: vision.get_model(name, **weights, **options)


def _transformers(source: str, name: str, options: dict[str, Any]) -> Callable[[], nn.Module]:
    transformers = library("transformers", source)
    made: Any = getattr(transformers, name, None) if name in dir(transformers) else None
    if not _is_model_class(made, transformers.PreTrainedModel):
        raise _unknown(source, "transformers", name, [word for word in dir(transformers) if _looks_like_model(word)])
    config_class = made.config_class
    try:
        default = config_class()
    except Exception:  # a few configurations have required options
        default = None
    for option in options:  # a configuration keeps options that it does not know, and models ignore them
        if default is not None and not hasattr(default, option):
            hint = checks.did_you_mean(option, vars(default))
            raise ValueError(f"{config_class.__name__} has no option {option!r}.{hint}")
    return lambda: made(config_class(**options))


def _is_model_class(made: Any, base: type) -> bool:
    is_class = isinstance(made, type) and issubclass(made, base) and made.__module__.startswith("transformers.")
    return is_class and getattr(made, "config_class", None) is not None


def _looks_like_model(word: str) -> bool:
    return word[:1].isupper() and ("Model" in word or "For" in word) and not word.startswith(("Auto", "PreTrained"))


def _algebranets(source: str, name: str, options: dict[str, Any]) -> Callable[[], nn.Module]:
    if name not in models.MODELS:
        raise _unknown(source, "algebranets", name, models.MODELS)
    if isinstance(options.get("algebra"), dict):
        options = {**options, "algebra": Algebra.from_table(options["algebra"])}
    return lambda: models.create(name, **options)


def _unknown(source: str, library: str, name: str, known: Any) -> ValueError:
    near = checks.closest(name, known)
    hint = f" Did you mean '{library}:{near}'?" if near else ""
    return ValueError(f"{source!r:.80} is not a model of {library}.{hint}")


_MAKERS: dict[str, Callable[[str, str, dict[str, Any]], Callable[[], nn.Module]]] = {
    "timm": _timm,
    "torchvision": _torchvision,
    "transformers": _transformers,
    "algebranets": _algebranets,
}
