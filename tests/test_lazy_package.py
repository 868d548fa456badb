"""`import algebranets` imports each public name when it is first used."""

import ast
import inspect
import json
import pickle
import subprocess
import sys

import pytest
import torch

import algebranets as an

#: What a new process finds, step by step. Starting one and importing torch takes long, so there is one.
STEPS = """
import json, pickle, sys
import algebranets as an
found = {"dir": set(an.__all__) <= set(dir(an)), "version": an.__version__}
an.H, an.algebra.get("M2R"), an.diagonal(2)
from algebranets import M2R
found["torch after algebras"] = "torch" in sys.modules
layer = pickle.load(open(sys.argv[1], "rb"))
import torch
from torch.utils.flop_counter import flop_registry
found["counter"] = torch.ops.algebranets.decode_linear in flop_registry
found["accounting"] = "algebranets.accounting" in sys.modules
found["output"] = layer(torch.ones(2, 8)).tolist()
from algebranets import *
found["star"] = set(an.__all__) <= set(globals())
print(json.dumps(found))
"""


#: A new process uses each subpackage as an attribute when it is not imported yet: none imports a later one of the list.
SUBPACKAGES = """
import sys
import algebranets as an
found = {}
for name in ("algebra", "ops", "product", "nn", "accounting", "models", "conversion", "pruning"):
    assert f"algebranets.{name}" not in sys.modules
    found[name] = getattr(an, name).__name__
print(found)
"""

#: Threads use all names and subpackages for the first time at once.
THREADS = """
import sys, threading
import algebranets as an

def use(name):
    together.wait()
    try:
        getattr(an, name)
    except BaseException as error:
        errors.append(f"{name}: {error!r}")

errors = []
names = dir(an)[::-1]
together = threading.Barrier(len(names))
sys.setswitchinterval(1e-5)
threads = [threading.Thread(target=use, args=(name,)) for name in names]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(errors)
"""


def in_new_process(code, *arguments):
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def layer():
    return an.over("H").Linear(8, 4)


@pytest.fixture(scope="module")
def found(layer, tmp_path_factory):
    file = tmp_path_factory.mktemp("lazy") / "layer.pickle"
    file.write_bytes(pickle.dumps(layer))
    return json.loads(in_new_process(STEPS, str(file)))


def test_importing_the_package_and_using_its_algebras_does_not_import_torch(found):
    assert found["torch after algebras"] is False
    assert found["version"] == an.__version__


def test_names_that_are_not_imported_yet_are_listed_and_star_imported(found):
    assert found["dir"]
    assert found["star"]


def test_a_pickled_layer_is_loaded_in_a_process_that_has_used_no_layer(found, layer):
    torch.testing.assert_close(torch.tensor(found["output"]), layer(torch.ones(2, 8)))


def test_torchs_flop_counter_knows_our_operators_before_accounting_is_imported(found):
    """It counts nothing for an operator that it does not know, and does not say so."""
    assert found["counter"]
    assert not found["accounting"]


def test_type_checkers_see_the_names_that_the_package_has():
    """They are listed three times: in ``__all__`` or the subpackages, for type checkers, and with their modules."""
    tree = ast.parse(inspect.getsource(an))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imported = {alias.name: node.module for node in block.body for alias in node.names}
    assert set(imported) == {*an.__all__, *an._SUBPACKAGES}
    assert {name: module for name, module in imported.items() if module != "algebranets"} == an._HOMES


@pytest.mark.parametrize("name", an.__all__)
def test_every_public_name_is_there(name):
    namespace = {}
    exec(f"from algebranets import {name}", namespace)
    assert namespace[name] is getattr(an, name)


def test_every_subpackage_is_an_attribute_whatever_was_used_before():
    found = ast.literal_eval(in_new_process(SUBPACKAGES))
    assert found == {name: f"algebranets.{name}" for name in an._SUBPACKAGES}
    assert set(found) <= set(dir(an))


def test_threads_can_use_all_names_and_subpackages_for_the_first_time_at_once():
    assert in_new_process(THREADS).strip() == "[]"


def test_an_unknown_name_is_an_attribute_error_and_an_import_error():
    with pytest.raises(AttributeError, match="module 'algebranets' has no attribute 'Quaternion'"):
        an.Quaternion  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Quaternion'"):
        exec("from algebranets import Quaternion")
