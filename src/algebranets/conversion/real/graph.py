"""Turns a model whose code is ours into a graph of torch's functions and modules."""

from __future__ import annotations

import inspect
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from copy import deepcopy
from operator import getitem
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree as pytree

from algebranets.conversion.running import Call

_ATEN = torch.ops.aten

#: Functions that make tensors. fx cannot load a graph that calls aten's versions with an open size.
_FACTORIES: dict[Any, Any] = {
    _ATEN.zeros.default: torch.zeros,
    _ATEN.ones.default: torch.ones,
    _ATEN.empty.memory_format: torch.empty,
    _ATEN.full.default: torch.full,
}

#: Checks that `torch.export` writes into a graph. They do not change the result.
_CHECKS = ("_assert", "sym_constrain_range")


def exported(model: nn.Module, call: Call) -> ExportedProgram:
    """Export a model in evaluation mode, with open sizes of inputs where the model allows it.

    Inputs with up to three axes may have all sizes open. Inputs with more axes, such as images, may have an open first
    axis. A size that the model requires, such as the number of features, is fixed. The model is traced on the CPU,
    where no operator of ours is used.

    Args:
        model: The model. It is not changed.
        call: Example inputs.
    """
    device = next((tensor.device for tensor in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    copy = deepcopy(model).to("cpu").eval()
    enlarged = _enlarged(copy, call.to("cpu"))
    axes = _open_axes(copy, enlarged)
    with torch.no_grad(), _quiet():
        program = torch.export.export(copy, enlarged.args, dict(enlarged.kwargs), dynamic_shapes=axes, strict=False)
    if device.type == "cpu":
        return program
    from torch.export.passes import move_to_device_pass

    return move_to_device_pass(program, str(device))


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide torch's warnings about recurrent layers, and the graph that it prints when it fails."""
    nowhere = io.StringIO()
    with warnings.catch_warnings(action="ignore"), redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def reason(error: Exception) -> str:
    """Return why `torch.export` failed, in one line.

    Args:
        error: The error that it raised.
    """
    if "DataDependent" in type(error).__name__:
        return "the model's code depends on the values of a tensor, for example in an if, which a graph cannot follow"
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _enlarged(model: nn.Module, call: Call) -> Call:
    """Return inputs with a batch of 2 instead of 1 if the model takes them. `torch.export` fixes sizes of 0 and 1."""

    def twice(value: Any) -> Any:
        is_one = isinstance(value, Tensor) and value.dim() > 0 and value.shape[0] == 1
        return torch.cat([value, value]) if is_one else value

    larger = Call(*pytree.tree_map(twice, (call.args, dict(call.kwargs))))
    try:
        larger.run(model)
    except Exception:  # the first axis of some input is not the batch
        return call
    return larger


def _open_axes(model: nn.Module, call: Call) -> dict[str, Any]:
    """The axes of each argument whose sizes may change, by the argument's name."""

    def axes(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return None
        return dict.fromkeys(range(value.dim() if value.dim() <= 3 else 1), Dim.AUTO)

    bound = inspect.signature(model.forward).bind(*call.args, **call.kwargs).arguments
    found: dict[str, Any] = {}
    for name, value in bound.items():
        if inspect.signature(model.forward).parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            found |= pytree.tree_map(axes, value)
        else:
            found[name] = pytree.tree_map(axes, value)
    return found


def graph(model: nn.Module, call: Call) -> nn.Module:
    """Return a model as a `torch.fx.GraphModule` of torch's functions. Parameters keep their names.

    Batch norms and dropouts are modules, so that the result can be trained.

    Args:
        model: The model.
        call: Example inputs.
    """
    writer = _Writer(model, exported(model, call), call)
    writer.write()
    module = fx.GraphModule(writer.root, writer.graph, type(model).__name__)
    module.graph.eliminate_dead_code()
    module.recompile()
    module.train(model.training)
    return module


class _Writer:
    """Writes an exported program as a graph that takes the arguments of the model."""

    def __init__(self, model: nn.Module, program: ExportedProgram, call: Call) -> None:
        self.model, self.program, self.call = model, program, call
        self.root, self.graph = nn.Module(), fx.Graph()
        #: The new node for each node of the program.
        self.nodes: dict[fx.Node, Any] = {}
        #: The name of the parameter, buffer or constant for each placeholder of the program that is not an input.
        self.state = {
            spec.arg.name: spec.target or ""
            for spec in program.graph_signature.input_specs
            if spec.kind is not InputKind.USER_INPUT
        }

    def write(self) -> None:
        """Write all nodes."""
        inputs = self._inputs()
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                if node.name not in self.state:
                    self.nodes[node] = next(inputs)
            elif node.op == "output":
                self.graph.output(self._outputs(node))
            else:
                self._copy(node)

    def _inputs(self) -> Iterator[fx.Node]:
        """Yield the nodes of the tensors in the arguments, in the order of the program's inputs."""
        names = list(inspect.signature(self.model.forward).parameters)
        arguments: dict[Any, fx.Node] = {}
        leaves, _ = pytree.tree_flatten_with_path((self.call.args, dict(self.call.kwargs)))
        paths: list[tuple[Any, ...]] = [path for path, _ in leaves]
        for _, first, *_rest in paths:
            if first not in arguments:
                place = getattr(first, "idx", None)
                name = first.key if place is None else names[place] if place < len(names) else f"input_{place}"
                arguments[first] = self.graph.placeholder(name)
        for _, first, *rest in paths:
            node = arguments[first]
            for key in rest:
                node = self.graph.call_function(getitem, (node, key.idx if hasattr(key, "idx") else key.key))
            yield node

    def _outputs(self, node: fx.Node) -> Any:
        specs = self.program.graph_signature.output_specs
        if any(spec.kind not in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT) for spec in specs):
            raise ValueError("the model changes its inputs or buffers in evaluation mode, which a graph cannot do.")
        values = [self._value(value) for value in node.args[0]]  # type: ignore[union-attr]
        spec = self.program.module_call_graph[0].signature.out_spec
        result = pytree.tree_unflatten(values, spec)
        kinds = (tuple, list, dict, fx.Node, int, float, type(None))
        if not isinstance(result, kinds):
            raise ValueError(f"the model returns a {type(result).__name__}; a graph returns tensors, tuples or dicts.")
        return result

    def _value(self, value: Any) -> Any:
        return fx.map_arg(value, self._node)

    def _node(self, node: fx.Node) -> Any:
        if node not in self.nodes:
            path = self.state[node.name]
            self._place(path, self.program.constants[path] if path in self.program.constants else self._found(path))
            self.nodes[node] = self.graph.get_attr(path)
        return self.nodes[node]

    def _found(self, path: str) -> Any:
        """The parameter, buffer or module of the model with a dotted name."""
        parent, _, name = path.rpartition(".")
        return getattr(self.model.get_submodule(parent), name)

    def _place(self, path: str, value: Any) -> None:
        """Give the root a parameter, buffer or module under a dotted name."""
        *parents, name = path.split(".")
        module = self.root
        for parent in parents:
            if parent not in module._modules:
                module.add_module(parent, nn.Module())
            module = getattr(module, parent)
        if hasattr(module, name):
            return
        if isinstance(value, nn.Module):
            module.add_module(name, value)
        elif isinstance(value, nn.Parameter):
            module.register_parameter(name, value)
        else:
            module.register_buffer(name, value)

    def _copy(self, node: fx.Node) -> None:
        name = getattr(node.target, "__name__", str(node.target))
        if name.startswith(_CHECKS) or node.op == "get_attr":
            return
        if name.startswith("wrap_with_"):  # a region with its own settings, such as autocast turned off
            self._inline(node)
        elif node.target is _ATEN.batch_norm.default:
            self._batch_norm(node)
        elif node.target is _ATEN.dropout.default:
            self._dropout(node)
        else:
            made = self.graph.node_copy(node, self._node)
            made.meta.clear()
            if node.target in _FACTORIES:
                made.target = _FACTORIES[node.target]
            self.nodes[node] = made

    def _inline(self, node: fx.Node) -> None:
        body = next(
            getattr(self.program.graph_module, str(argument.target))
            for argument in node.args
            if isinstance(argument, fx.Node) and argument.op == "get_attr"
        )
        given = [arg for arg in node.args if isinstance(arg, fx.Node) and arg.op != "get_attr"]
        inner = [n for n in body.graph.nodes if n.op == "placeholder"]
        for placeholder, value in zip(inner, given, strict=True):
            self.nodes[placeholder] = self._node(value)
        for part in body.graph.nodes:
            if part.op == "output":
                self.nodes[node] = self._value(part.args[0])
            elif part.op != "placeholder":
                self._copy(part)

    def _batch_norm(self, node: fx.Node) -> None:
        """Call torch's module instead of the function, which has a fixed mode."""
        statistics: Any = node.args[3]
        path = self.state[statistics.name].rpartition(".")[0] if statistics is not None else ""
        if not isinstance(norm := self.model.get_submodule(path), _BatchNorm):
            self.nodes[node] = self.graph.node_copy(node, self._node)
            return
        self._call(node, path, norm)

    def _dropout(self, node: fx.Node) -> None:
        """Call torch's module instead of the function, which has a fixed mode."""
        stack = list(node.meta.get("nn_module_stack", {}).values())
        path, kind = stack[-1] if stack else ("", "")
        if kind != "torch.nn.modules.dropout.Dropout":
            path = node.name
        rate: Any = node.args[1]
        self._call(node, path, nn.Dropout(rate))

    def _call(self, node: fx.Node, path: str, module: nn.Module) -> None:
        self._place(path, module)
        self.nodes[node] = self.graph.call_module(path, (self._value(node.args[0]),))
