"""`convert`, which turns a torch model into an AlgebraNet: it replaces layers and keeps the code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, Literal, TypeVar, overload

from torch import nn

from algebranets import checks
from algebranets.accounting import Account, account
from algebranets.accounting import Row as CostRow
from algebranets.conversion import peers
from algebranets.conversion.calls import counting
from algebranets.conversion.candidates import candidates, check_model, size_problem
from algebranets.conversion.choice import Algebras
from algebranets.conversion.deciding import Boundary, Decision, decide
from algebranets.conversion.initial import INITS, take_over
from algebranets.conversion.inputs import Arguments, describe, example_inputs, fresh, preserved
from algebranets.conversion.layers import Spec, build, core, weights_over_algebra
from algebranets.conversion.report import Conversion, Row, from_data
from algebranets.conversion.variants import shown_name

ModelT = TypeVar("ModelT", bound=nn.Module)


@overload
def convert(
    model: ModelT, algebra: Algebras, *, keep: str | None = ..., lift: str | None = ..., head: str = ...,
    init: str = ..., inputs: Any = ..., dry_run: Literal[False] = ...,
) -> ModelT: ...  # fmt: skip
@overload
def convert(
    model: nn.Module, algebra: Algebras, *, keep: str | None = ..., lift: str | None = ..., head: str = ...,
    init: str = ..., inputs: Any = ..., dry_run: Literal[True],
) -> Conversion: ...  # fmt: skip
def convert(
    model: nn.Module,
    algebra: Algebras,
    *,
    keep: str | None = None,
    lift: str | None = None,
    head: str = "real",
    init: str = "scale",
    inputs: Any = None,
    dry_run: bool = False,
) -> Any:
    """Return a copy of a model with its layers replaced by layers over an algebra.

    The model's class and code stay as they are. The model is run on example inputs to find which layers it calls and
    where its code cuts or joins channels. The new layers have random weights, so the converted model must be trained.
    Print its report, ``model.conversion``, to see what became of each layer.

    Args:
        model: Any torch model.
        algebra: An `Algebra` or its name, for all layers, or a mapping from patterns to algebras. A pattern is the name
            of a layer, or of a module that contains layers; "re:" and a regular expression for the whole name of a
            layer; or "*" for all other layers. Names come before regular expressions, and "*" comes last. None keeps a
            layer real.
        keep: Which layers stay real: "first,last", "first", "last" or "none". The first layers are those whose input no
            other layer computed, for example a first convolution, or the embeddings of tokens and positions. The last
            layer is the one whose output reaches the model's output without another layer in between; if there are
            several, the one that is called last. A layer that ``algebra`` names exactly is converted anyway. The
            default is "first,last", but without "first" if ``lift`` is given, and without "last" if ``head`` is
            "tuple_norm".
        lift: Puts an `algebranets.nn.Lift` of this mode ("learned", "zeros" or "copy") in front of the first layers and
            converts them, as in the paper. None for no Lift.
        head: "real", or "tuple_norm": the last layer becomes a layer over the algebra with one tuple for each output,
            followed by an `algebranets.nn.TupleNorm`, as in the paper.
        init: How weights over the algebra are initialized. "scale": the outputs of a layer have the same variance as
            those of the original layer, and a layer whose weights are zero stays zero. "glorot": Glorot's rule, as in
            the paper. Biases and embeddings are copied.
        inputs: The example inputs: a tensor, a tuple of arguments or a dict of named arguments. By default they are
            guessed from the model; a first convolution gets images of 224 x 224 pixels.
        dry_run: Whether to return only the report, without a converted model.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, 10))
    >>> convert(model, "M2R")
    Sequential(
      (0): Linear(in_features=3, out_features=64, bias=True)
      (1): Linear(in_features=64, out_features=64, bias=True, algebra=M2R)
      (2): Linear(in_features=64, out_features=10, bias=True)
    )
    """
    check_model(model)
    made = _convert(deepcopy(model), algebra, Boundary(keep, lift, head), init, inputs)
    return made.conversion if dry_run else made


def convert_(
    model: nn.Module,
    algebra: Algebras,
    *,
    keep: str | None = None,
    lift: str | None = None,
    head: str = "real",
    init: str = "scale",
    inputs: Any = None,
) -> nn.Module:
    """Replace the layers of a model by layers over an algebra, in place, and return the model.

    If the conversion fails, the model is unchanged. Create optimizers after the conversion, because the model has new
    parameters.

    Args:
        model: Any torch model that is not itself a single layer.
        algebra: The algebra, or a mapping from patterns to algebras, as in `convert`.
        keep: Which of the first and last layers stay real, as in `convert`.
        lift: The mode of a Lift in front of the first layers, or None, as in `convert`.
        head: What becomes of the last layer, "real" or "tuple_norm", as in `convert`.
        init: How weights are initialized, "scale" or "glorot", as in `convert`.
        inputs: The example inputs, as in `convert`.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, 10))
    >>> convert_(model, "M2R") is model, model[1]
    (True, Linear(in_features=64, out_features=64, bias=True, algebra=M2R))
    """
    check_model(model)
    if "" in candidates(model):
        raise ValueError(
            f"the model is itself a {type(model).__name__}, which cannot be replaced in place: use convert."
        )
    return _convert(model, algebra, Boundary(keep, lift, head), init, inputs)


def apply_plan(model: ModelT, plan: Mapping[str, Any]) -> ModelT:
    """Convert a real model in place as a plan describes, without running the model.

    The result has the layers of the model that the plan is from, so its state dict can be loaded. Weights are
    initialized as with ``init="scale"``. The report has no multiply-adds.

    Args:
        model: The real model.
        plan: The plan, from ``model.conversion.plan()``.

    >>> import torch
    >>> def make(): return torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3)))
    >>> plan = convert(make(), "H").conversion.plan()
    >>> apply_plan(make(), plan)[1]
    Linear(in_features=8, out_features=8, bias=True, algebra=H)
    """
    if not isinstance(plan, Mapping):
        raise ValueError(f"plan must be a dict from model.conversion.plan(); got a {type(plan).__name__}.")
    check_model(model)
    layers = candidates(model)
    specs = {name: from_data(name, data) for name, data in plan.items()}
    for name, spec in specs.items():
        if name not in layers:
            hint = checks.did_you_mean(name, layers)
            raise ValueError(
                f"the plan converts {name!r:.80}, which is not such a layer of {type(model).__name__}.{hint}"
            )
        if problem := layers[name].reason or size_problem(layers[name], spec):
            raise ValueError(f"the plan does not fit {name!r} of {type(model).__name__}: {problem}.")
    kept = {name: layer.reason or "it is not in the plan" for name, layer in layers.items() if name not in specs}
    before = _sizes(model)
    replacement = _Replacement(model, specs, "scale")
    made = replacement.apply()
    made.conversion = _report(model, Decision(layers, specs, kept, ()), None, (before, _sizes(made)), replacement.new)  # type: ignore[assignment]
    return made  # type: ignore[return-value]


def _convert(model: nn.Module, algebra: Algebras, boundary: Boundary, init: str, inputs: Any) -> nn.Module:
    checks.one_of("init", init, INITS)
    if isinstance(getattr(model, "conversion", None), Conversion):
        raise ValueError(
            "the model is already converted. To use several algebras, pass a mapping from names to algebras."
        )
    if hasattr(model, "conversion"):
        raise ValueError("the model has an attribute 'conversion', where its report would be: rename the attribute.")
    with preserved(model):
        arguments = example_inputs(model, inputs)
        decision = decide(model, algebra, arguments, boundary)
        before = _account(model, arguments)
    replacement = _Replacement(model, decision.specs, init)
    with replacement.undone_on_error():
        made = replacement.apply()
        with preserved(made):
            after = _account_converted(made, replacement.new, arguments)
        # Set as a plain attribute: it is not a parameter, a buffer or a module.
        made.conversion = _report(model, decision, arguments, (before, after), replacement.new)  # type: ignore[assignment]
    return made


class _Replacement:
    """The new layers of a model, which it can put in place and take out again."""

    def __init__(self, model: nn.Module, specs: Mapping[str, Spec], init: str) -> None:
        self.model = model
        self.new: dict[str, nn.Module] = {}
        self._places: list[tuple[nn.Module, str, nn.Module, nn.Module]] = []
        self._encoders: list[tuple[nn.TransformerEncoder, bool]] = []
        by_old: dict[int, nn.Module] = {}
        shared: dict[int, nn.Parameter] = {}
        for name, spec in specs.items():
            old = model.get_submodule(name)
            new = build(old, spec)
            if peers.find(old) is None:  # layers of other libraries keep their weights
                take_over(old, new, spec, init)
                for path, owner, weight in weights_over_algebra(core(new)):
                    source = getattr(old.get_submodule(path), weight.name)
                    owner._parameters[weight.name] = shared.setdefault(id(source), getattr(owner, weight.name))
            if hasattr(model, "_init_weights"):  # transformers must not initialize these layers again
                for module in new.modules():
                    module._is_hf_initialized = True  # type: ignore[assignment]
            self.new[name], by_old[id(old)] = new, new
        for parent in model.modules():
            for key, child in parent._modules.items():
                if child is not None and id(child) in by_old:
                    self._places.append((parent, key, child, by_old[id(child)]))
            if isinstance(parent, nn.TransformerEncoder) and any(id(m) in by_old for m in parent.layers):
                self._encoders.append((parent, parent.use_nested_tensor))

    def apply(self) -> nn.Module:
        """Put the new layers in place and return the model, or the new layer if the model is itself a layer."""
        for parent, key, _, new in self._places:
            parent._modules[key] = new
        for encoder, _ in self._encoders:
            encoder.use_nested_tensor = False  # torch's fast path reads the weights of real layers
        return self.new.get("", self.model)

    @contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """Put the old layers back if an error is raised."""
        try:
            yield
        except BaseException:
            for parent, key, old, _ in self._places:
                parent._modules[key] = old
            for encoder, nested in self._encoders:
                encoder.use_nested_tensor = nested
            raise


def _account(model: nn.Module, arguments: Arguments) -> Account:
    args, kwargs = fresh(arguments)
    return account(model, *args, **kwargs)


def _account_converted(model: nn.Module, new: Mapping[str, nn.Module], arguments: Arguments) -> Account:
    """The cost of the converted model. Raises an error if it does not run, or does not call every new layer."""
    with counting(new.values()) as count:
        try:
            cost = _account(model, arguments)
        except Exception as error:  # whatever the model's code raises
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(
                f"{type(model).__name__} does not run with layers over an algebra: {reason:.300}. Keep the layers that "
                "this error is about real, as in {'name': None, '*': ...}."
            ) from error
    unused = [name for name, module in new.items() if not count[id(module)]]
    if unused:
        raise ValueError(
            f"the model does not call the new layers {', '.join(map(repr, unused[:5]))}, because its code reaches the "
            "old ones in another way, for example through a list: map them to None."
        )
    return cost


def _report(
    model: nn.Module,
    decision: Decision,
    arguments: Arguments | None,
    accounts: tuple[Account, Account],
    new: Mapping[str, nn.Module],
) -> Conversion:
    """The report. Without arguments, the model was not run, so it has no multiply-adds."""
    rows = []
    before, after = accounts
    uncounted = [0, 0]  # what `account` misses in layers of other libraries: parameters and multiply-adds
    for name, layer in decision.layers.items():
        spec = decision.specs.get(name)
        costs = [_cost(cost, name) for cost in accounts]
        if spec and layer.kind.exact:
            uncounted = [total + now - then for total, then, now in zip(uncounted, *costs, strict=True)]
            costs[0] = costs[1]
        rows.append(
            Row(
                name,
                type(layer.module).__name__,
                shown_name(type(core(new[name]))) if spec else type(layer.module).__name__,
                spec.algebra if spec else None,
                decision.kept.get(name, ""),
                (costs[0][0], costs[1][0]),
                None if arguments is None else (costs[0][1], costs[1][1]),
                *((spec.in_parts, spec.out_parts, spec.lift, spec.head) if spec else ()),
            )
        )
    return Conversion(
        type(model).__name__,
        "" if arguments is None else describe(*arguments),
        tuple(rows),
        (before.parameters + uncounted[0], after.parameters),
        None if arguments is None else (before.multiplies + uncounted[1], after.multiplies),
        decision.torn,
        after.unknown,
    )


def _sizes(model: nn.Module) -> Account:
    """The parameters of a model and its modules, without a run. A shared parameter counts in the first module."""
    seen: set[int] = set()
    rows = []
    for name, module in model.named_modules():
        own = [p for p in module._parameters.values() if p is not None and id(p) not in seen]
        seen.update(map(id, own))
        rows.append(CostRow(name, type(module).__name__, "", parameters=sum(p.numel() for p in own)))
    total = sum(row.parameters for row in rows)
    return Account(type(model).__name__, "", "", parameters=total, rows=tuple(rows))


def _cost(cost: Account, name: str) -> tuple[int, int]:
    """The parameters and multiply-adds of a layer and its children."""
    rows = [row for row in cost.rows if not name or row.name == name or row.name.startswith(f"{name}.")]
    return sum(row.parameters for row in rows), sum(row.multiplies for row in rows)
