"""`over`: torch.nn's names with an algebra bound, so that one line turns torch code into an AlgebraNet."""

from __future__ import annotations

import copyreg
import inspect
from abc import ABCMeta
from collections.abc import Callable, Sequence
from functools import cache, partial
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from torch import Tensor

from algebranets import algebra as algebras
from algebranets import nn, product
from algebranets.algebra import Algebra
from algebranets.nn.layer import REQUIRED
from algebranets.nn.refused import REFUSED, unknown_name
from algebranets.nn.untouched import Untouched


def over(algebra: Algebra | str) -> Namespace:
    """Return torch.nn's names with an algebra bound. The layers are those of `algebranets.nn`.

    Replace ``from torch import nn`` by ``nn = algebranets.over("H")``, and `torch.cat`, `torch.chunk` and `torch.split`
    along the channels by ``nn.cat``, ``nn.chunk`` and ``nn.split``. ``nn.Linear(8, 8, algebra="R")`` overrides the
    algebra for one layer.

    Args:
        algebra: The algebra, an `Algebra` or a name such as "M2R".

    >>> import torch, algebranets as an
    >>> nn = an.over("M2R")
    >>> model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))
    >>> model[0]
    Linear(in_features=512, out_features=1024, bias=True, algebra=M2R)
    >>> type(model[0]) is an.nn.Linear, isinstance(model[0], nn.Linear), type(model[1]) is torch.nn.ReLU
    (True, True, True)
    """
    return _namespace(algebras.get(algebra))


class Namespace(Untouched):
    """The namespace that `over` returns: torch.nn's names with an algebra bound.

    ``nn.Linear`` and the other layers are subclasses of those in `algebranets.nn` that fill in ``algebra=``. Calling
    one gives an instance of the class in `algebranets.nn`, and ``isinstance(layer, nn.Linear)`` tests for that class.
    You can also derive your own classes from ``nn.Linear``. ``type(layer) == nn.Linear`` holds, but not
    ``type(layer) is nn.Linear``.

    Args:
        algebra: The algebra.

    >>> import algebranets as an
    >>> nn = an.over(an.H)
    >>> nn, nn.algebra is an.H
    (algebranets.over(H), True)
    """

    # fmt: off
    from algebranets.nn import (  # noqa: I001
        GLU, GRU, LSTM, RNN, AdaptiveLogSoftmaxWithLoss, AlgebraWeight, Bilinear, ChannelShuffle, Conv1d, Conv2d,
        Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, Embedding, EmbeddingBag, GRUCell, GroupNorm,
        InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, LSTMCell, Layer, LazyConv1d, LazyConv2d, LazyConv3d,
        LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d, LazyInstanceNorm1d, LazyInstanceNorm2d,
        LazyInstanceNorm3d, LazyLinear, Lift, Lift1d, Lift2d, Lift3d, Linear, LocalResponseNorm, MultiheadAttention,
        PixelShuffle, PixelUnshuffle, QuantizedLinear, RMSNorm, RNNCell, RelativeAttention, SparseConv, SparseLinear,
        Transformer, TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer, TupleDropout, TupleGate,
        TupleLayerNorm, TupleNorm, Whitening1d, Whitening2d, Whitening3d, functional, init, utils,
    )
    # fmt: on

    def __init__(self, algebra: Algebra) -> None:
        self.algebra = algebra
        for name in nn.__all__:
            setattr(self, name, _bound(getattr(nn, name), algebra))

    def cat(self, tensors: Sequence[Tensor], dim: int) -> Tensor:
        """Join tensors along their channel axis: `algebranets.cat` over this algebra.

        Args:
            tensors: Activations with the same shape, except for the number of tuples on the channel axis.
            dim: The channel axis: 1 for images, -1 for features. Use `torch.cat` along every other axis.
        """
        return product.cat(tensors, dim, algebra=self.algebra)

    def split(self, x: Tensor, split_size: int | Sequence[int], dim: int) -> tuple[Tensor, ...]:
        """Cut a tensor along its channel axis into parts of given sizes: `algebranets.split` over this algebra.

        Args:
            x: Activations.
            split_size: The number of real channels in each part, or a list with one number for each part.
            dim: The channel axis: 1 for images, -1 for features. Use `torch.split` along every other axis.
        """
        return product.split(x, split_size, dim, algebra=self.algebra)

    def chunk(self, x: Tensor, chunks: int, dim: int) -> tuple[Tensor, ...]:
        """Cut a tensor along its channel axis into a number of parts: `algebranets.chunk` over this algebra.

        Args:
            x: Activations.
            chunks: The number of parts.
            dim: The channel axis: 1 for images, -1 for features. Use `torch.chunk` along every other axis.
        """
        return product.chunk(x, chunks, dim, algebra=self.algebra)

    def split_heads(self, x: Tensor, num_heads: int) -> Tensor:
        """Divide features among attention heads: `algebranets.split_heads` over this algebra.

        Args:
            x: Features, (..., time, features).
            num_heads: The number of heads, which must divide the number of tuples.
        """
        return product.split_heads(x, num_heads, algebra=self.algebra)

    def join_heads(self, y: Tensor) -> Tensor:
        """Join the features of all heads into one axis: `algebranets.join_heads` over this algebra.

        Args:
            y: The heads, (..., heads, time, features of a head).
        """
        return product.join_heads(y, algebra=self.algebra)

    def tuples(self, x: Tensor, dim: int = -1) -> Tensor:
        """Split the channel axis into two, (component, tuple): `algebranets.tuples` over this algebra.

        Args:
            x: Activations.
            dim: The channel axis.
        """
        return product.tuples(x, self.algebra, dim)

    def from_tuples(self, t: Tensor, dim: int = -2) -> Tensor:
        """Join the component axis and the axis after it: `algebranets.from_tuples` over this algebra.

        Args:
            t: Tuples, with components in the order of the algebra's table.
            dim: The component axis.
        """
        return product.from_tuples(t, self.algebra, dim)

    if not TYPE_CHECKING:  # type checkers know the names above, and report others

        def __getattr__(self, name: str) -> Any:
            raise unknown_name(repr(self), name, dir(self), REFUSED)

    def __repr__(self) -> str:
        return f"algebranets.over({self.algebra.name})"

    def __reduce__(self) -> tuple[Any, ...]:
        return over, (self.algebra,)


@cache
def _namespace(algebra: Algebra) -> Namespace:
    """Return the only namespace of an algebra, so that every call of ``over`` gives the same classes."""
    return Namespace(algebra)


class _Binding(ABCMeta):
    """The metaclass of layer classes with a bound algebra, and of classes that users derive from them."""

    def _base(cls) -> Any:
        """The class of `algebranets.nn` if the algebra is bound to ``cls`` itself, else None."""
        return cls.__base__ if "_bound_algebra" in vars(cls) else None

    @property
    def __signature__(cls) -> inspect.Signature:
        """The arguments of the constructor, for `help` and editors. A bound algebra is shown by its name."""
        base = cls._base()
        signature = inspect.signature(cls.__init__ if base is None else base.__init__)  # type: ignore[misc]
        parameters = list(signature.parameters.values())[1:]  # without self
        if base is not None:
            name = cls._bound_algebra.name  # type: ignore[attr-defined]
            parameters = [p.replace(default=name) if p.name == "algebra" else p for p in parameters]
        return signature.replace(parameters=parameters)

    def __call__(cls, *args: Any, **options: Any) -> Any:
        if (base := cls._base()) is None:
            return super().__call__(*args, **options)
        return base(*args, **_filled_in(options, cls._bound_algebra))  # type: ignore[attr-defined]

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) if (base := cls._base()) is None else isinstance(instance, base)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return super().__subclasscheck__(subclass) if (base := cls._base()) is None else issubclass(subclass, base)

    def __eq__(cls, other: object) -> bool:
        """Whether the two bind the same class, so that ``type(layer) == nn.Linear`` holds for ``nn.Linear(8, 8)``."""
        if (base := cls._base()) is None:
            return cls is other
        return base is (other._base() if isinstance(other, _Binding) else other)

    def __hash__(cls) -> int:
        return super().__hash__() if (base := cls._base()) is None else hash(base)

    def __setattr__(cls, name: str, value: Any) -> None:
        if cls._base() is not None and not name.startswith("_"):  # Python sets some names with an underscore
            raise AttributeError(
                f"{name} cannot be set on {cls!r}, because its layers are instances of algebranets.nn.{cls.__name__}: "
                "set it on that class, or derive a class of your own and define it there."
            )
        super().__setattr__(name, value)

    def __repr__(cls) -> str:
        return super().__repr__() if cls._base() is None else f"<class '{cls._namespace()!r}.{cls.__name__}'>"

    def _namespace(cls) -> Namespace:
        return over(cls._bound_algebra)  # type: ignore[attr-defined]


def _reduce(cls: _Binding) -> Any:
    """Pickle a class with a bound algebra as an attribute of its namespace, and other classes by their names."""
    return cls.__qualname__ if cls._base() is None else (getattr, (cls._namespace(), cls.__name__))


copyreg.pickle(_Binding, _reduce)


class _BoundModule:
    """A module of functions, such as `algebranets.nn.init`, that fills in their argument ``algebra=``."""

    def __init__(self, module: ModuleType, algebra: Algebra) -> None:
        self._module, self._algebra = module, algebra

    def __getattr__(self, name: str) -> Any:
        return _bound(getattr(self._module, name), self._algebra)

    def __dir__(self) -> list[str]:
        return dir(self._module)

    def __repr__(self) -> str:
        return f"{over(self._algebra)!r}.{self._module.__name__.rpartition('.')[2]}"


def _bound(value: Any, algebra: Algebra) -> Any:
    """Return a layer class, a function or a module of functions with the algebra filled in, other values unchanged."""
    if not getattr(value, "__module__", getattr(value, "__name__", "")).startswith("algebranets."):
        return value
    if isinstance(value, ModuleType):
        return _BoundModule(value, algebra)
    if isinstance(value, type):
        return _bound_class(value, algebra) if issubclass(value, nn.Layer) and _takes_algebra(value) else value
    return partial(value, algebra=algebra) if isinstance(value, FunctionType) and _takes_algebra(value) else value


def _takes_algebra(function: Callable[..., Any]) -> bool:
    algebra = inspect.signature(function).parameters.get("algebra")
    return algebra is not None and algebra.kind is algebra.KEYWORD_ONLY


def _bound_class(layer: type[nn.Layer], algebra: Algebra) -> _Binding:
    def init(self: nn.Layer, *args: Any, **options: Any) -> None:
        super(bound, self).__init__(*args, **_filled_in(options, algebra))  # type: ignore[arg-type]

    body = {"__init__": init, "__doc__": layer.__doc__, "__module__": layer.__module__, "_bound_algebra": algebra}
    bound = _Binding(layer.__name__, (layer,), body)
    return bound


def _filled_in(options: dict[str, Any], algebra: Algebra) -> dict[str, Any]:
    given = options.get("algebra", REQUIRED)
    return {**options, "algebra": algebra if given is REQUIRED else given}
