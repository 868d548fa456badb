"""Names of torch.nn that `algebranets.nn` does not pass on, with the reasons and what to use instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from algebranets import checks

_REAL_LAYERS = "it contains torch's own layers, which have real weights. Use the layers of algebranets.nn"

#: Why each of these names of torch.nn is refused, and what to use instead.
REFUSED: Mapping[str, str] = {
    "CrossMapLRN2d": "it sums squares over neighboring channels, which are components of different tuples. Use "
    "LocalResponseNorm, whose neighbors are whole tuples",
    "LinearCrossEntropyLoss": "it contains a real linear layer. Use Linear, TupleNorm and CrossEntropyLoss",
    "LinearCrossEntropyOptions": "it holds options of LinearCrossEntropyLoss, which contains a real linear layer. Use "
    "Linear, TupleNorm and CrossEntropyLoss",
    "RNNBase": "it is the base of torch's recurrent layers over the real numbers. Use RNN, LSTM or GRU",
    "RNNCellBase": "it is the base of torch's recurrent cells over the real numbers. Use RNNCell, LSTMCell or GRUCell",
    "factory_kwargs": "it is an internal helper of torch's layers. Use torch.nn.factory_kwargs if you need it",
    "grad": "it contains gradients of real convolutions. Use autograd",
    "intrinsic": _REAL_LAYERS,
    "modules": _REAL_LAYERS,
    "qat": _REAL_LAYERS,
    "quantizable": _REAL_LAYERS,
    "quantized": _REAL_LAYERS,
}


def unknown_name(module: str, name: str, names: Iterable[str], refused: Mapping[str, str]) -> AttributeError:
    """Return the error for a name that is unknown, or that torch's module has and ours refuses.

    Args:
        module: The name of our module, for the error.
        name: The unknown or refused name.
        names: All names of our module, for suggestions.
        refused: The reason for each refused name.
    """
    if name in refused:
        return AttributeError(f"{module} does not pass on torch's {name}: {refused[name]}.")
    by_letters = {known.lower(): known for known in names}
    near = by_letters.get(checks.closest(name.lower(), by_letters))
    hint = f" Did you mean {near!r}?" if near else ""
    return AttributeError(f"{module} has no attribute {name!r}.{hint}")
