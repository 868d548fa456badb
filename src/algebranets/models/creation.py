"""`create`, which makes a model by its name, with new or trained weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from torch import nn

from algebranets import algebra as algebras
from algebranets import checks
from algebranets.models import registry, weights
from algebranets.models.downloads import local_file

#: Options that change how a model is computed or trained, but not what it computes. They need not be those of the file.
_FREE = ("lowering", "attention_kernel", "recompute_attention", "dropout", "init")


def create(name: str, *, pretrained: Path | str | None = None, **options: Any) -> nn.Module:
    """Create a model by name, with random weights or with trained ones.

    With ``pretrained``, options that are not given are those of the file, and the model is in evaluation mode. Options
    that are given must agree with the file, except those that do not change the result, such as ``lowering``.

    Args:
        name: A key of `MODELS`.
        pretrained: The trained weights: the folder of a finished run, the path of a ``.safetensors`` file that
            `publish` wrote, or its URL. ``#sha256=`` and 64 hexadecimal digits may follow the path. Then the file must
            have this SHA-256. They must follow a URL of http or https. A download is kept in torch.hub's folder.
        options: The arguments of the model's constructor. ``algebra`` is required without ``pretrained``: an `Algebra`
            or a name.

    >>> import tempfile, algebranets as an
    >>> model = create("cifar_resnet", algebra="M2R", num_blocks=1)
    >>> model.algebra.name
    'M2R'
    >>> create("gru_lm", algebra="M2R", hidden=64)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: gru_lm has no option 'hidden'. Did you mean 'hidden_size'? It takes algebra, hidden_size, ...
    >>> file = Path(tempfile.mkdtemp()) / "cifar_resnet-M2R.safetensors"
    >>> an.models.publish(model, "cifar_resnet", an.M2R, {"num_blocks": 1}, file)
    >>> len(create("cifar_resnet", algebra="M2R", pretrained=file).stage1)
    1
    >>> create("cifar_resnet", algebra="H", pretrained=file)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: ...cifar_resnet-M2R.safetensors holds a cifar_resnet with algebra=M2R; got algebra=H. ...
    """
    if pretrained is None:
        return registry.build(name, options)
    make = registry.MODELS[checks.one_of("model", name, registry.MODELS)]
    file, described = weights.describe(local_file(pretrained))
    found, algebra, stored = weights.parts(file, described)
    if found != name:
        raise ValueError(
            f"{file} holds a {found}; got the name {name!r}. Give the name that it holds, or other weights."
        )
    checks.options(name, {"algebra": algebra, **options}, make)
    if "algebra" in options and algebras.get(options["algebra"]) != algebra:
        _disagree(file, name, "algebra", algebra, algebras.get(options["algebra"]))
    changes = {}
    for key, parameter in checks.parameters(make).items():
        if key == "algebra" or key not in options:
            continue
        value = checks.typed(f"{name}'s {key}", options[key], parameter.annotation)
        if key in _FREE:
            changes[key] = value
        elif value != stored.get(key, parameter.default):
            _disagree(file, name, key, stored.get(key, parameter.default), value)
    return weights.read(file, described, changes)


def _disagree(file: Path, name: str, key: str, found: Any, given: Any) -> NoReturn:
    """Raise an error that names the option of the file and the one that was given."""
    other = " (another algebra of that name)" if str(found) == str(given) else ""
    raise ValueError(
        f"{file} holds a {name} with {key}={found}; got {key}={given}{other}. Leave out {key}, or give other weights."
    )
