"""`Layer`, the base class of all layers over an algebra, which saves the algebra in state dicts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, wraps
from hashlib import sha256
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor

from algebranets import algebra as algebras
from algebranets.algebra import Algebra, R


class _Required:
    def __repr__(self) -> str:
        return "<required>"


#: The default of ``algebra=`` in every layer. For this value, `Layer.resolve` raises an error that says what to write.
REQUIRED: Any = _Required()

#: The buffer that holds the algebra, and so the name of its entry in a layer's state dict.
_BUFFER = "algebra_id"

#: A saved algebra is the SHA-256 of its table, then its name in UTF-8, padded with zeros, then four bytes for the basis
#: of the weights: zeros for that of the table, else the beginning of the SHA-256 of `Change.weights`. The size is the
#: same for all algebras, because `torch.distributed.checkpoint` loads into tensors of the size that the model has.
_HASH_SIZE, _NAME_SIZE, _BASIS_SIZE = 32, 28, 4


class Layer(nn.Module):
    """The base class of layers over an algebra. State dicts of layers with parameters record the algebra.

    The record is a small buffer, ``algebra_id``, so it is also saved in safetensors files and in checkpoints of
    `torch.distributed.checkpoint`. Loading weights of another algebra is an error. Over R there is no such buffer, so
    state dicts have the same entries as those of torch.nn. To record and check the algebra of your own layer, derive it
    from this class and set ``self.algebra = self.resolve(algebra)`` in its constructor.

    Args:
        args, kwargs: Arguments of the next base class. `torch.nn.Module` takes none.

    >>> import algebranets as an
    >>> list(an.nn.Linear(8, 8, algebra=an.H).state_dict())
    ['weight', 'bias', 'algebra_id']
    >>> list(an.nn.Linear(8, 8, algebra=an.R).state_dict())
    ['weight', 'bias']
    """

    #: Why torch's layer of the same name takes tuples apart, as the last sentence of the error for a missing algebra.
    reason: ClassVar[str] = ""

    algebra: Algebra

    algebra_id: Tensor

    def __init_subclass__(cls, **options: Any) -> None:
        """Let every constructor end with `_record_algebra`, because only then are the parameters known."""
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = _recording(cls.__init__)  # type: ignore[method-assign]

    @classmethod
    def resolve(cls, algebra: Algebra | str) -> Algebra:
        """Return the algebra that was given to the layer, or raise an error that says how to give one.

        Args:
            algebra: The argument ``algebra=`` of the layer.
        """
        return resolve(algebra, cls.__name__, reason=cls.reason)

    def _record_algebra(self) -> None:
        """Register the buffer, if the layer has parameters or buffers of its own, and its algebra is not R."""
        own = [tensor for tensor in (*self._parameters.values(), *self._buffers.values()) if tensor is not None]
        if own and _BUFFER not in self._buffers and getattr(self, "algebra", R).terms != R.terms:
            others = dict(self._buffers)
            self._buffers.clear()  # first, because torch.export loses count of buffers after one that is None
            self.register_buffer(_BUFFER, self._recorded(own[0].device))
            self._buffers.update(others)

    def _recorded(self, device: torch.device) -> Tensor:
        # The dtype is int32, so that tools that average state dicts do not overflow when they add them.
        return torch.tensor(list(_encode(self.algebra)), dtype=torch.int32, device=device)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        key = f"{prefix}{_BUFFER}"
        if key in destination:
            # Save a new tensor: torch.distributed.checkpoint loads in place, and `to_empty` leaves the buffer empty.
            destination[key] = self._recorded(destination[key].device)

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
        key, num_errors = f"{prefix}{_BUFFER}", len(error_msgs)
        if (problem := self._other_algebra(state_dict, prefix)) is not None:
            error_msgs.append(problem)
            return
        is_missing = key not in state_dict and any(name.startswith(prefix) for name in state_dict)
        if _BUFFER in self._buffers and (problem := self._in_own_basis(state_dict, prefix)) is not None:
            error_msgs.append(problem)
            return
        if _BUFFER in self._buffers:  # the entry has been checked; its name may differ, and it may be sharded
            given = (value for name, value in state_dict.items() if name.startswith(prefix))
            device = next((value.device for value in given if isinstance(value, Tensor)), self.algebra_id.device)
            state_dict = {**state_dict, key: self._recorded(device)}
        rest = (local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        super()._load_from_state_dict(state_dict, prefix, *rest)
        if is_missing and _BUFFER in self._buffers and len(error_msgs) == num_errors:
            basis = ", in the basis of its table" if self.algebra.change else ""
            warnings.warn(
                "the state dict does not record the algebra of its weights: it was saved by an older version of "
                f"algebranets or by another library. They are loaded as weights over {self.algebra.name}{basis}. Save "
                "the model again to record the algebra.",
                stacklevel=2,
            )

    def _in_own_basis(self, state_dict: dict[str, Any], prefix: str) -> str | None:
        """Change weights in a state dict, in place, to the basis in which they are stored, if they are in another one.

        Older versions stored all weights in the basis of the table. Returns an error message if a change is impossible.
        """
        saved = state_dict.get(f"{prefix}{_BUFFER}")
        if self.algebra.change is None or (
            isinstance(saved, Tensor) and (saved.is_meta or isinstance(saved, FakeTensor))
        ):
            return None
        basis = bytes(_BASIS_SIZE) if saved is None else _bytes(saved)[-_BASIS_SIZE:]
        if basis == _encode(self.algebra)[-_BASIS_SIZE:]:
            return None
        if any(basis):
            return (
                f"the weights of {prefix.rstrip('.') or type(self).__name__} are stored in a basis that this version "
                f"of algebranets does not have for {self.algebra.name}: load them in the version that saved them, and "
                "save layer.weight_tuples."
            )
        return self._change_basis(state_dict, prefix)

    def _change_basis(self, state_dict: dict[str, Any], prefix: str) -> str | None:
        """Change weights in a state dict, in place, from the basis of the table to that in which they are stored.

        Returns an error message if this is not possible.
        """
        weights: Callable[[], Any] = getattr(type(self), "algebra_weights", lambda _: ()).__get__(self)
        for weight in weights():
            if any(key.startswith(f"{prefix}parametrizations.{weight.name}.") for key in state_dict):
                return (
                    f"{prefix}{weight.name} is parametrized, and was saved by an older version of algebranets in "
                    "another basis: load it there, remove the parametrization and save it again."
                )
            value = state_dict.get(prefix + weight.name)
            if (
                isinstance(value, Tensor)
                and value.dim() > 1
                and not value.shape[0] % (weight.stacks * self.algebra.dim)
            ):
                tuples = value.unflatten(0, (weight.stacks, self.algebra.dim, -1)).transpose(0, 1).flatten(1, 2)
                state_dict[prefix + weight.name] = weight.from_tuples(tuples)
        return None

    def _other_algebra(self, state_dict: dict[str, Any], prefix: str) -> str | None:
        """Return an error message if a state dict holds weights of another algebra for this layer, else None."""
        saved = state_dict.get(f"{prefix}{_BUFFER}")
        if not isinstance(saved, Tensor) or saved.is_meta or isinstance(saved, FakeTensor):
            return None
        data = _bytes(saved)
        if data[:_HASH_SIZE] == _encode(self.algebra)[:_HASH_SIZE]:
            return None
        name = data[_HASH_SIZE : _HASH_SIZE + _NAME_SIZE].rstrip(b"\0").decode(errors="replace")
        return (
            f"{prefix.rstrip('.') or type(self).__name__} is over {self.algebra.name}, but the state dict holds "
            f"weights over {name}, which has a different multiplication table: make the model with algebra={name!r}, "
            f"or load weights that were trained over {self.algebra.name}."
        )


def resolve(algebra: Algebra | str, name: str, module: str = "", reason: str = "") -> Algebra:
    """Return the algebra that was given to a layer or function, or raise an error that says how to give one.

    Args:
        algebra: The argument ``algebra=``.
        name: The name of the layer or function.
        module: The module of the function in algebranets.nn, with a dot at its end, such as "init.".
        reason: A sentence to add at the end of the error.
    """
    if algebra is REQUIRED:
        raise ValueError(
            f"{name} needs an algebra: write {module}{name}(..., algebra='H'), or bind the algebra once with "
            f"nn = algebranets.over('H') and write nn.{module}{name}(...).{reason and ' '}{reason}"
        )
    return algebras.get(algebra)


def _recording(init: Callable[..., None]) -> Callable[..., None]:
    @wraps(init)
    def init_and_record(self: Layer, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        self._record_algebra()

    return init_and_record


@cache
def _encode(algebra: Algebra) -> bytes:
    """Return the algebra as bytes. Algebras with the same table have the same first 32 bytes."""
    digest = sha256(repr((algebra.dim, algebra.terms)).encode()).digest()
    basis = bytes(_BASIS_SIZE)
    if algebra.change is not None:  # rounded, so that rounding errors do not change the basis
        numbers = tuple(round(1e6 * number) for row in algebra.change.weights for number in row)
        basis = sha256(repr(numbers).encode()).digest()[:_BASIS_SIZE]
    return digest + algebra.name.encode()[:_NAME_SIZE].ljust(_NAME_SIZE, b"\0") + basis


def _bytes(saved: Tensor) -> bytes:
    """Return the bytes of a saved algebra."""
    if hasattr(saved, "full_tensor"):  # a DTensor
        saved = saved.full_tensor()
    # A mean of several state dicts holds rounded numbers.
    return bytes(int(number) % 256 for number in saved.double().round().tolist())
