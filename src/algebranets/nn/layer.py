"""`Layer`, the base of all layers over an algebra: it asks for the algebra, and saves it in state dicts."""

from __future__ import annotations

import warnings
from hashlib import sha256
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from algebranets import algebra as algebras
from algebranets.algebra import Algebra, R


class _Required:
    def __repr__(self) -> str:
        return "<required>"


#: The default of ``algebra=`` in every layer. `Layer.resolve` raises an error for it that tells the user what to write.
REQUIRED: Any = _Required()

#: A saved algebra: the SHA-256 of its table, then its name in UTF-8, filled up with zeros. The size is the same for all
#: algebras, because `torch.distributed.checkpoint` loads into tensors of the size that the model has.
_HASH_SIZE, _NAME_SIZE = 32, 32


class Layer(nn.Module):
    """The base of layers over an algebra. State dicts of layers with parameters record the algebra.

    The entry ``"algebra"`` of a layer's state dict is a small tensor of bytes, so it is also saved in safetensors files
    and in checkpoints of `torch.distributed.checkpoint`. Loading weights of another algebra is an error. Over R there
    is no such entry, so state dicts are those of torch.nn's layers. Derive a layer of your own from this class, and set
    ``self.algebra = self.resolve(algebra)``, to have its algebra recorded and checked.

    Args:
        args, kwargs: Arguments of the next base class. `torch.nn.Module` takes none.

    >>> import algebranets as an
    >>> list(an.nn.Linear(8, 8, algebra=an.H).state_dict())
    ['weight', 'bias', 'algebra']
    >>> list(an.nn.Linear(8, 8, algebra=an.R).state_dict())
    ['weight', 'bias']
    """

    #: Why torch's layer of the same name does not keep tuples whole, as a sentence for the error without ``algebra=``.
    reason: ClassVar[str] = ""

    algebra: Algebra

    @classmethod
    def resolve(cls, algebra: Algebra | str) -> Algebra:
        """Return the algebra that was given to the layer, or raise an error that says how to give one.

        Args:
            algebra: The argument ``algebra=`` of the layer.
        """
        return resolve(algebra, cls.__name__, reason=cls.reason)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._records_algebra():
            destination[f"{prefix}algebra"] = _encode(self.algebra)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        key, num_errors = f"{prefix}algebra", len(error_msgs)
        if (problem := self._other_algebra(state_dict, prefix)) is not None:
            error_msgs.append(problem)
            return
        rest = (local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        super()._load_from_state_dict(state_dict, prefix, *rest)
        if key in unexpected_keys:
            unexpected_keys.remove(key)
        holds = any(name.startswith(prefix) for name in state_dict)
        if holds and key not in state_dict and self._records_algebra() and len(error_msgs) == num_errors:
            warnings.warn(
                "the state dict does not record the algebra of its weights: it was saved by an older algebranets or "
                f"by another library. Its weights are read as those of {self.algebra.name}; save it again to record "
                "the algebra.",
                stacklevel=2,
            )

    def _records_algebra(self) -> bool:
        """Whether state dicts hold the algebra: it is not R, and the layer has parameters or buffers of its own."""
        own = (*self._parameters.values(), *self._buffers.values())
        has_state = any(tensor is not None for tensor in own) or parametrize.is_parametrized(self)
        return has_state and self.algebra.terms != R.terms

    def _other_algebra(self, state_dict: dict[str, Any], prefix: str) -> str | None:
        """An error message if the layer's weights in a state dict are those of another algebra, else None."""
        saved = state_dict.get(f"{prefix}algebra")
        if not isinstance(saved, Tensor) or saved.is_meta:
            return None
        data = bytes(saved.to(torch.uint8).tolist())
        if data[:_HASH_SIZE] == bytes(_encode(self.algebra).tolist())[:_HASH_SIZE]:
            return None
        name = data[_HASH_SIZE:].rstrip(b"\0").decode(errors="replace")
        return (
            f"{prefix.rstrip('.') or type(self).__name__} is over {self.algebra.name}, but the weights in the state "
            f"dict are those of {name}, whose table is different: make the model with algebra={name!r}, or train these "
            f"weights again over {self.algebra.name}."
        )


def resolve(algebra: Algebra | str, name: str, module: str = "", reason: str = "") -> Algebra:
    """Return the algebra that was given to a layer or function, or raise an error that says how to give one.

    Args:
        algebra: The argument ``algebra=``.
        name: The name of the layer or function.
        module: The module of the function in algebranets.nn, with a dot at its end, such as "init.".
        reason: A sentence for the end of the error.
    """
    if algebra is REQUIRED:
        raise ValueError(
            f"{name} needs an algebra: write {module}{name}(..., algebra='H'), or bind the algebra once with "
            f"nn = algebranets.over('H') and write nn.{module}{name}(...).{reason and ' '}{reason}"
        )
    return algebras.get(algebra)


def _encode(algebra: Algebra) -> Tensor:
    """The algebra as a tensor of bytes. Algebras with the same table have the same first 32 bytes."""
    digest = sha256(repr((algebra.dim, algebra.terms)).encode()).digest()
    name = algebra.name.encode()[:_NAME_SIZE].ljust(_NAME_SIZE, b"\0")
    return torch.tensor(list(digest + name), dtype=torch.uint8, device="cpu")
