"""Damaged weights files: each one is loaded safely or refused with a ValueError.

Kernels read memory at the indices of a sparse weight, so `models.load` must refuse a file with an index outside of its
layer.
"""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import load as load_tensors
from safetensors.torch import save

import algebranets as an
from algebranets.models import load, publish
from algebranets.nn import SparseLinear
from algebranets.product.compressed import assemble
from algebranets.pruning import Pruner
from fuzz import fuzzed

MODELS = {
    "gru_lm": {"hidden_size": 8, "num_readouts": 1},
    "transformer_xl": {"num_layers": 1, "d_model": 8, "ff_size": 16, "num_heads": 1, "window": 4},
}
FILES = st.tuples(st.sampled_from(sorted(MODELS)), st.booleans())
DTYPES = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool, torch.float16, torch.float32,
          torch.bfloat16, torch.float64, torch.complex64]  # fmt: skip
NUMBERS = st.sampled_from([-(2**31), -(2**15), -1, 0, 1, 2, 3, 4, 7, 8, 9, 300, 20000, 2**15 - 1, 2**31 - 1])
ANYTHING = (
    st.none() | st.booleans() | st.integers(-9, 300) | st.floats() | st.text(max_size=5) | st.just([]) | st.just({})
)


@pytest.fixture(scope="module")
def folder():
    with TemporaryDirectory() as name:
        yield Path(name)


@cache
def published(name, is_sparse):
    """The bytes of a valid file."""
    torch.manual_seed(0)
    model = an.models.create(name, algebra="C", **MODELS[name])
    Pruner(model, 0.75).finish()
    with TemporaryDirectory() as where:
        file = Path(where) / "weights.safetensors"
        publish(an.sparse(model) if is_sparse else model, name, an.C, MODELS[name], file)
        return file.read_bytes()


def parts(data):
    """The header of a file, and the bytes of its tensors."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def joined(header, rest):
    encoded = json.dumps(header).encode()
    return len(encoded).to_bytes(8, "little") + encoded + rest


@st.composite
def damaged_bytes(draw):
    """Draw a file with bytes replaced, removed or inserted, more often in the header."""
    data = bytearray(published(*draw(FILES)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, 7) | st.integers(8, 2000) | st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data[: draw(st.just(len(data)) | st.integers(0, len(data)))])


@st.composite
def damaged_headers(draw):
    """Draw a file whose header gives tensors another type, shape, offset or name, or leaves them out."""
    header, rest = parts(published(*draw(FILES)))
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(sorted(header.keys() - {"__metadata__"})))
        field = draw(st.sampled_from(["dtype", "shape", "data_offsets", "name", None]))
        entry = header.pop(name)
        if field == "dtype":
            entry["dtype"] = draw(
                st.sampled_from(["I8", "U8", "I16", "I32", "I64", "F16", "F64", "BOOL", "F8_E4M3", "C64", "X"])
            )
        elif field == "name":
            name = draw(st.sampled_from(["", "x", name + "x", name.removesuffix("s"), "head.weight"]))
        elif field is not None:
            axis = draw(st.integers(0, max(0, len(entry[field]) - 1)))
            entry[field][axis : axis + draw(st.integers(0, 1))] = draw(
                st.lists(st.integers(-1, 300) | ANYTHING, max_size=2)
            )
        if field is not None:
            header[name] = entry
    return joined(header, rest)


@st.composite
def damaged_descriptions(draw):
    """Draw a file whose description of its model is changed in one or two places."""
    header, rest = parts(published(*draw(FILES)))
    described = json.loads(header["__metadata__"]["algebranets"])
    for _ in range(draw(st.integers(1, 2))):
        inside = draw(
            st.sampled_from(
                [
                    part
                    for part in (described, described.get("options"), described.get("algebra"))
                    if isinstance(part, dict) and part
                ]
            )
        )
        key = draw(st.sampled_from(sorted(inside)))
        inside.pop(key) if draw(st.booleans()) else inside.update(
            {draw(st.just(key) | st.text(max_size=5)): draw(ANYTHING)}
        )
    header["__metadata__"]["algebranets"] = json.dumps(described)
    return joined(header, rest)


@st.composite
def damaged_tensors(draw):
    """Draw a valid safetensors file whose tensors have other numbers, shapes or types, or are missing."""
    data = published(draw(st.sampled_from(sorted(MODELS))), draw(st.integers(0, 3)) > 0)
    tensors, (header, _) = load_tensors(data), parts(data)
    sparse_parts = [name for name in sorted(tensors) if name.endswith(("starts", "indices", "values"))]
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(sparse_parts or sorted(tensors)))
        if name not in tensors:
            continue
        tensor = tensors[name]
        kind = draw(st.sampled_from(["number", "number", "number", "cut", "longer", "dtype", "axis", "sorted", "gone"]))
        if not tensor.dim():
            continue
        if kind == "number" and tensor.numel():
            at, number = draw(st.integers(0, tensor.numel() - 1)), draw(NUMBERS)
            if not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool:
                number = max(torch.iinfo(tensor.dtype).min, min(torch.iinfo(tensor.dtype).max, number))
            tensor.view(-1)[at] = number
        elif kind == "cut":
            tensors[name] = tensor[: draw(st.integers(0, len(tensor)))].clone()
        elif kind == "longer":
            tensors[name] = torch.cat([tensor, tensor[:1]])
        elif kind == "dtype":
            tensors[name] = tensor.to(draw(st.sampled_from(DTYPES)))
        elif kind == "axis":
            tensors[name] = draw(
                st.sampled_from([tensor[None], tensor.flatten(), tensor.sum().to(tensor.dtype)])
            ).clone()
        elif kind == "sorted":
            tensors[name] = tensor.flip(0)
        elif kind == "gone":
            del tensors[name]
    return save({name: tensor.contiguous() for name, tensor in tensors.items()}, header["__metadata__"])


def assert_it_is_safe_or_an_error(data, folder):
    file = folder / "weights.safetensors"
    file.write_bytes(data)
    try:
        model = load(file)
    except ValueError:
        return
    for layer in model.modules():
        if isinstance(layer, SparseLinear):
            made = assemble(layer.starts, layer.indices, layer.values, layer.weight.num_in, layer.algebra)
            assert torch.equal(made.maps, layer.maps)
            assert made.longest == layer.longest
            assert made.num_out * layer.algebra.dim == layer.out_features
    with torch.no_grad():
        model(*model.example_inputs())


def test_a_file_that_is_not_damaged_is_loaded(folder):
    for name in MODELS:
        for is_sparse in (False, True):
            (folder / "whole.safetensors").write_bytes(published(name, is_sparse))
            model = load(folder / "whole.safetensors")
            assert any(isinstance(layer, SparseLinear) for layer in model.modules()) == is_sparse


@fuzzed(0.25)
@given(damaged_bytes() | damaged_headers() | damaged_descriptions() | damaged_tensors())
@example(b"")
def test_damaged_files(folder, data):
    assert_it_is_safe_or_an_error(data, folder)
