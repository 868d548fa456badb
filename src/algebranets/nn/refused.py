"""Names of torch.nn that `algebranets.nn` does not pass on, with the reasons and what to use instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from algebranets import checks

_REAL_LAYERS = "it holds torch's own layers, which multiply real numbers. Use the layers of algebranets.nn"

#: What is wrong with each name of torch.nn, and what to use.
REFUSED: Mapping[str, str] = {
    "CrossMapLRN2d": "it sums squares over neighboring channels, which are components of different tuples. Use "
    "LocalResponseNorm, whose neighbors are whole tuples",
    "LinearCrossEntropyLoss": "it contains a real linear layer. Use Linear, TupleNorm and CrossEntropyLoss",
    "LinearCrossEntropyOptions": "they are options of LinearCrossEntropyLoss, which contains a real linear layer. Use "
    "Linear, TupleNorm and CrossEntropyLoss",
    "RNNBase": "it is the base of torch's recurrent layers over the real numbers. Use RNN, LSTM or GRU",
    "RNNCellBase": "it is the base of torch's recurrent cells over the real numbers. Use RNNCell, LSTMCell or GRUCell",
    "factory_kwargs": "it is an internal function of torch's layers. Use torch.nn.factory_kwargs",
    "grad": "it holds gradients of real convolutions. Use autograd",
    "intrinsic": _REAL_LAYERS,
    "modules": _REAL_LAYERS,
    "qat": _REAL_LAYERS,
    "quantizable": _REAL_LAYERS,
    "quantized": _REAL_LAYERS,
}


def unknown_name(module: str, name: str, names: Iterable[str], refused: Mapping[str, str]) -> AttributeError:
    """The error for a name that a module does not have, or that torch's module has and ours refuses.

    Args:
        module: The name of the module in the error.
        name: The name that was asked for.
        names: The names that the module has.
        refused: The reasons for names that are refused.
    """
    if name in refused:
        return AttributeError(f"{module} has no {name}, because torch's does not work with tuples: {refused[name]}.")
    by_letters = {known.lower(): known for known in names}
    near = by_letters.get(checks.closest(name.lower(), by_letters))
    hint = f" Did you mean {near!r}?" if near else ""
    return AttributeError(f"{module} has no attribute {name!r}.{hint}")
