"""`PretrainedModel`, which saves and loads a model as a Hugging Face folder, on disk or on the hub."""

from __future__ import annotations

import copy
import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError
from torch import nn

from algebranets.conversion import pretrained, sources
from algebranets.conversion.card import Costs, model_card
from algebranets.conversion.pretrained import CARD, CONFIG, WEIGHTS
from algebranets.nn.layer import Layer

_INSTALL = "PretrainedModel needs huggingface_hub, which is not installed: run `pip install huggingface_hub`."


class _Missing:
    """Replaces the mixin if huggingface_hub is not installed, so that this file can still be imported."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__()

    def __new__(cls, *_: Any, **__: Any) -> NoReturn:
        raise ValueError(_INSTALL)


def _mixin() -> Any:
    try:
        return import_module("huggingface_hub").PyTorchModelHubMixin
    except ModuleNotFoundError:
        return _Missing


_Mixin: Any = _mixin()


class PretrainedModel(nn.Module, _Mixin, library_name="algebranets", tags=["algebranets"]):  # type: ignore[misc, call-arg]
    """A model that is saved and loaded in Hugging Face's way: `save_pretrained`, `from_pretrained`, `push_to_hub`.

    A folder holds config.json (how to build the model), model.safetensors (its weights) and README.md (the model
    card). The model itself is the attribute ``model``. Calls and attributes that this class does not have, such as
    ``generate`` or ``config``, are those of the model.

    Args:
        source: The source of the real model, for `sources.create`: "timm:resnet18", "torchvision:resnet18",
            "transformers:GPT2LMHeadModel" or "algebranets:resnet18". None means a model of your own class.
        options: The options of `sources.create`, as plain JSON data.
        plan: How the real model is converted, from ``model.conversion.plan()``. None for a model that is not
            converted.
        model: The finished model. By default it is built from the other arguments, with random weights.

    >>> import tempfile
    >>> model = PretrainedModel("algebranets:gru_lm", {"algebra": "H", "hidden_size": 16})
    >>> folder = Path(tempfile.mkdtemp()) / "gru"
    >>> model.save_pretrained(folder)
    >>> sorted(file.name for file in folder.iterdir())
    ['README.md', 'config.json', 'model.safetensors']
    >>> loaded = PretrainedModel.from_pretrained(folder)
    >>> loaded.algebra.name, torch.equal(loaded.head.weight, model.head.weight)
    ('H', True)
    """

    def __init__(
        self,
        source: str | None = None,
        options: Mapping[str, Any] | None = None,
        plan: Mapping[str, Any] | None = None,
        model: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if model is None and source is None:
            raise ValueError("PretrainedModel must have a source, such as 'timm:resnet18', or a finished model.")
        config = pretrained.describe(source, options, plan)
        self.model = pretrained.build(config) if model is None else model
        self._hub_mixin_config = {**config, "class": type(self.model).__name__}

    @classmethod
    def wrap(
        cls, model: nn.Module, source: str | None = None, options: Mapping[str, Any] | None = None
    ) -> PretrainedModel:
        """Return a `PretrainedModel` for a model that you converted or trained, in order to save it.

        Args:
            model: The model. It is not copied.
            source: The source of the real model, for `sources.create`. None means a model of your own class: to load
                the folder, pass the real model to `from_pretrained`.
            options: The options of `sources.create` for the real model.

        >>> import algebranets as an
        >>> trained = an.models.create("gru_lm", algebra=an.H, hidden_size=16)
        >>> model = PretrainedModel.wrap(trained, "algebranets:gru_lm", {"algebra": "H", "hidden_size": 16})
        >>> model.model is trained
        True
        """
        conversion = getattr(model, "conversion", None)
        wrapped = cls(source, options, None if conversion is None else conversion.plan(), model)
        if conversion is not None:
            pretrained.check_converted(model, conversion.plan())
        if source is not None:
            pretrained.check_same_weights(model, wrapped._hub_mixin_config)
        return wrapped

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        return self.model(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "model" not in self.__dict__.get("_modules", {}):
                raise
            return getattr(self.model, name)

    # Saving -----------------------------------------------------------------------------------------------------------

    def save_pretrained(
        self,
        save_directory: Path | str,
        *,
        config: None = None,
        repo_id: str | None = None,
        push_to_hub: bool = False,
        model_card_kwargs: Mapping[str, Any] | None = None,
        **push_to_hub_kwargs: Any,
    ) -> str | None:
        """Write the folder. If this fails, a folder that existed before is unchanged.

        In an existing folder, each file is replaced as a whole, and other files stay. A README.md that is already there
        stays too, unless ``model_card_kwargs`` is given.

        Args:
            save_directory: The folder to write.
            config: Must be None: config.json is made from the model.
            repo_id: The repository to push to. The default is the folder's name.
            push_to_hub: Whether to push the folder to the hub as well.
            model_card_kwargs: Arguments of `generate_model_card`: ``result``, ``license``, ``repository``, ``costs``.
            push_to_hub_kwargs: Further arguments of `push_to_hub`.
        """
        if config is not None:
            raise ValueError(f"config must be left out: config.json is made from the model; got {config!r:.80}.")
        folder = Path(save_directory).resolve()
        self._costs()  # becomes a part of config.json
        keeps_card = (folder / CARD).exists() and model_card_kwargs is None
        with pretrained.replacing(folder, [CONFIG, WEIGHTS] if keeps_card else [CONFIG, CARD, WEIGHTS]) as partial:
            super().save_pretrained(partial, model_card_kwargs=dict(model_card_kwargs or {}))
        if not push_to_hub:
            return None
        pushed = {"model_card_kwargs": model_card_kwargs, **push_to_hub_kwargs}
        return str(self.push_to_hub(repo_id or folder.name, **pushed))

    def _save_pretrained(self, save_directory: Path) -> None:
        pretrained.save_weights(self.model, save_directory / WEIGHTS, self._hub_mixin_config)

    def generate_model_card(self, *, costs: Costs | None = None, **options: Any) -> Any:
        """Return the model card, a `huggingface_hub.ModelCard`.

        Args:
            costs: The parameters and multiply-adds of the model and of the real network. By default they come from
                the conversion report, or are counted if the model is one of `algebranets.models`.
            options: Further arguments of `algebranets.conversion.card.model_card`: ``result``, ``license`` and
                ``repository``.
        """
        costs = costs or self._costs()
        trained = (options.get("result") or {}).get("parameters", costs.parameters)
        if trained != costs.parameters:
            raise ValueError(
                f"the result must be of this model: it is of a model with {trained:,} parameters, and this model has "
                f"{costs.parameters:,}."
            )
        layers = [module for module in self.model.modules() if isinstance(module, Layer)]
        names = dict.fromkeys(layer.algebra.name for layer in layers if layer.algebra.dim > 1)
        report = getattr(self.model, "conversion", None)
        options = {"report": "" if report is None else str(report), **options}
        return model_card(self._hub_mixin_config, list(names), costs, **options)

    def _costs(self) -> Costs:
        config = self._hub_mixin_config
        if "costs" not in config:
            config["costs"] = asdict(pretrained.count(self.model, config))
        return Costs(**config["costs"])

    # Loading ----------------------------------------------------------------------------------------------------------

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: Path | str,
        *,
        model: nn.Module | None = None,
        map_location: torch.device | str = "cpu",
        force_download: bool = False,
        token: str | bool | None = None,
        cache_dir: Path | str | None = None,
        local_files_only: bool = False,
        revision: str | None = None,
    ) -> PretrainedModel:
        """Load a model from a folder or a repository of the hub, in evaluation mode.

        Only config.json and model.safetensors are read. No code of the folder is run. The weights must fit exactly.

        Args:
            pretrained_model_name_or_path: The folder, or the name of a repository, such as "me/my-model".
            model: The real model, for folders of a model of your own class. It is copied, not changed.
            map_location: The device of the weights.
            force_download: Whether to download the files of a repository again.
            token: The token of the hub. The default is the token of the login.
            cache_dir: The folder for downloaded files.
            local_files_only: Whether to use only files that are already downloaded.
            revision: The branch, tag or commit of the repository.
        """
        if issubclass(cls, _Missing):
            raise ValueError(_INSTALL)
        download: dict[str, Any] = {"force_download": force_download, "token": token, "cache_dir": cache_dir}
        download |= {"local_files_only": local_files_only, "revision": revision}
        folder = _folder(pretrained_model_name_or_path, download)
        try:
            config = pretrained.read_config(folder)
            built = pretrained.build(config, copy.deepcopy(model))
            pretrained.load_weights(built, folder / WEIGHTS, config, str(map_location))
            made = cls(config["source"], config["options"], pretrained.unfold_plan(config), built)
        except (ValueError, TypeError, KeyError, RuntimeError, OSError, SafetensorError) as error:
            reason = f"there is no {error} in it" if isinstance(error, KeyError) else str(error)
            short = textwrap.shorten(reason, 400, placeholder=" ...")
            raise ValueError(f"{pretrained_model_name_or_path} cannot be loaded: {short}") from error
        made._hub_mixin_config = config
        return made.eval()


def _folder(name: Path | str, download: Mapping[str, Any]) -> Path:
    """The folder on this machine: the given one, or the files of the repository, downloaded."""
    folder = Path(name)
    if folder.is_dir():
        return folder
    hub = sources.library("huggingface_hub", "PretrainedModel")
    try:
        return Path(hub.snapshot_download(str(name), allow_patterns=[CONFIG, WEIGHTS, CARD], **download))
    except (OSError, ValueError, hub.errors.HfHubHTTPError) as error:
        reason = textwrap.shorten(str(error), 300, placeholder=" ...")
        raise ValueError(f"{name} is not a folder here, and it cannot be loaded from the hub: {reason}") from error
