"""The package as users get it: wheel and sdist, metadata, workflows and the files around them."""

import email
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import algebranets as an

build = pytest.importorskip("build")

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
URLS = PROJECT["urls"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel that is built from it, without a network.

    The workflow that publishes sets ALGEBRANETS_DIST to the folder of the files that it is about to upload.
    """
    if "ALGEBRANETS_DIST" in os.environ:
        there = Path(os.environ["ALGEBRANETS_DIST"]).resolve()
        (sdist,), (wheel,) = there.glob("*.tar.gz"), there.glob("*.whl")
        return {"sdist": sdist, "wheel": wheel}
    folder = tmp_path_factory.mktemp("dist")
    made = {}
    source = ROOT
    for kind in ("sdist", "wheel"):
        made[kind] = Path(build.ProjectBuilder(str(source)).build(kind, str(folder)))
        if kind == "sdist":
            with tarfile.open(made[kind]) as archive:
                archive.extractall(folder, filter="data")
            source = folder / made[kind].name.removesuffix(".tar.gz")
    return made


@pytest.fixture(scope="module")
def metadata(built):
    with zipfile.ZipFile(built["wheel"]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(wheel.read(name))


# The wheel ------------------------------------------------------------------------------------------------------------

SMOKE = """
import sys, torch, algebranets as an
from pathlib import Path
assert Path(an.__file__).is_relative_to(sys.argv[1]), an.__file__
assert not any(Path(path).resolve().is_relative_to(sys.argv[2]) and "site-packages" not in path for path in sys.path)
assert an.over("M2R").Linear(8, 8)(torch.randn(2, 8)).shape == (2, 8)
assert an.models.create("cifar_resnet", algebra="H", num_blocks=1)(torch.randn(1, 3, 8, 8)).shape == (1, 10)
from algebranets.lab.cli import app
from typer.testing import CliRunner
def run(*words):
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.output
run("report", sys.argv[2] + "/results/cifar10.jsonl", "--out", "report")
run("recipes")
"""


def test_the_wheel_works_outside_the_checkout(built, tmp_path):
    """The wheel is unpacked as pip does it; the packages that it needs are those of this environment."""
    target, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    elsewhere.mkdir()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*pip, str(built["wheel"])], check=True, capture_output=True, text=True)
    environment = {**os.environ, "PYTHONPATH": str(target), "OMP_NUM_THREADS": "1"}
    environment.pop("ALGEBRANETS_DATA", None)
    options = {"cwd": elsewhere, "env": environment, "capture_output": True, "text": True}
    # -P leaves out the current folder. An editable install of the checkout comes after PYTHONPATH.
    code = "import sys; sys.path = [p for p in sys.path if not p.startswith(sys.argv[2] + '/src')]\n" + SMOKE
    smoke = subprocess.run([sys.executable, "-P", "-c", code, str(target), str(ROOT)], **options)
    assert smoke.returncode == 0, smoke.stderr[-3000:]
    assert list((elsewhere / "report").rglob("*.html"))
    script = subprocess.run([sys.executable, str(target / "bin" / "algebranets"), "--version"], **options)
    assert script.stdout.strip() == f"algebranets {an.__version__}"


def test_the_wheel_holds_the_package_and_nothing_else(built):
    with zipfile.ZipFile(built["wheel"]) as wheel:
        inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    package = ROOT / "src"
    there = {
        path.relative_to(package).as_posix()
        for path in (package / "algebranets").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == there
    assert "algebranets/py.typed" in inside


def test_the_metadata_is_complete(metadata):
    assert metadata["Version"] == an.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert not [line for line in metadata.get_all("Classifier") if line.startswith("License")]
    assert {line.split(", ")[0] for line in metadata.get_all("Project-URL")} == {
        "Homepage", "Documentation", "Repository", "Issues", "Changelog",
    }  # fmt: skip
    assert set(metadata.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    versions = {line.rpartition(" ")[2] for line in metadata.get_all("Classifier") if re.search(r":: 3\.\d+$", line)}
    assert versions == {"3.11", "3.12", "3.13"}
    assert metadata["Requires-Python"] == f">={min(versions, key=Version)}"


def test_the_description_has_no_link_that_leads_nowhere_on_a_package_index(metadata):
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = re.sub(r"^```.*?^```", "", metadata.get_payload(), flags=re.S | re.M)
    links = re.findall(r"\]\(([^)\s]+)", text) + re.findall(r'(?:src|srcset|href)="([^"]+)"', text)
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert f"{URLS['Repository']}/blob/main/CONTRIBUTING.md" in links
    pictures = re.findall(r"!\[[^\]]*\]\(([^)\s]+)", text) + re.findall(
        r'<(?:img|source)[^>]* src(?:set)?="([^"]+)', text
    )
    assert not [picture for picture in pictures if "github.com" in picture and "/blob/" in picture]


def test_the_version_says_the_same_everywhere():
    assert Version(an.__version__).public == an.__version__
    assert re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), flags=re.M)[1] == an.__version__
    heading = "Unreleased" if Version(an.__version__).is_devrelease else an.__version__
    assert f"## [{heading}]" in (ROOT / "CHANGELOG.md").read_text()


# The sdist ------------------------------------------------------------------------------------------------------------


def test_the_sdist_holds_what_the_tests_need_and_nothing_large(built):
    with tarfile.open(built["sdist"]) as archive:
        sizes = {member.name.partition("/")[2]: member.size for member in archive if member.isfile()}
    there = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    known = {name for name in there.stdout.splitlines() if (ROOT / name).exists()}
    if known:  # a checkout, not an unpacked sdist
        assert {name for name in known if not name.endswith(".safetensors")} - set(sizes) == set()
    assert max(sizes.values()) < 1e6
    assert built["sdist"].stat().st_size < 5e6
    assert not [name for name in sizes if re.search(r"(^|/)(\.venv|__pycache__|\.git|runs|site|\w*_cache)/", name)]


# Workflows ------------------------------------------------------------------------------------------------------------

WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").glob("*.yml")}


def steps(workflow):
    return [step for job in WORKFLOWS[workflow]["jobs"].values() for step in job.get("steps", [])]


def needs(job):
    return [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])


def commands(workflow):
    return "\n".join(step["run"] for step in steps(workflow) if "run" in step)


@pytest.mark.parametrize("name", ["tests", "docs", "publish"])
def test_a_workflow_has_few_rights_a_time_limit_and_released_actions(name):
    workflow = WORKFLOWS[name]
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["group"]
    for step in steps(name):
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@(v\d+|release/v\d+)", step["uses"])
    for job in workflow["jobs"].values():
        if "uses" in job:
            assert (ROOT / job["uses"]).is_file()
            assert "workflow_call" in WORKFLOWS[Path(job["uses"]).stem][True]
        else:
            assert job["timeout-minutes"] <= 60
        assert set(needs(job)) <= set(workflow["jobs"])


def test_the_workflows_run_the_commands_of_ci():
    script = (ROOT / ".ci" / "run").read_text()
    run = re.findall(r"^\.venv/bin/(.*)$", script, flags=re.M)
    assert len(run) == 6
    assert [command for command in run if command not in commands("tests")] == []
    assert "mkdocs build --strict" in commands("docs")


def test_the_tests_run_on_every_python_and_on_the_oldest_and_newest_torch():
    matrix = next(job["strategy"]["matrix"] for job in WORKFLOWS["tests"]["jobs"].values() if "strategy" in job)
    named = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)}
    assert {row["python"] for row in matrix["include"]} == named
    (torch,) = (line for line in PROJECT["dependencies"] if line.startswith("torch"))
    oldest = next(iter(Requirement(torch).specifier)).version
    assert {row["torch"] for row in matrix["include"]} == {f"torch=={oldest}.*", "torch"}


def test_only_a_tag_publishes_and_without_a_password():
    workflow = WORKFLOWS["publish"]
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML reads the key "on" as true
    writers = {name: job for name, job in workflow["jobs"].items() if "id-token" in job.get("permissions", {})}
    (job,) = writers.values()
    assert job["environment"]["name"] == "pypi"
    assert job["permissions"] == {"id-token": "write"}
    assert [step["uses"] for step in job["steps"]][-1] == "pypa/gh-action-pypi-publish@release/v1"
    assert "secrets" not in (ROOT / ".github/workflows/publish.yml").read_text()


def test_nothing_is_published_before_all_tests_and_those_of_the_files_themselves():
    jobs = WORKFLOWS["publish"]["jobs"]
    assert set(needs(jobs["upload"])) == {"tests", "build"}
    assert jobs["tests"]["uses"] == "./.github/workflows/tests.yml"
    (upload,) = (step for step in jobs["build"]["steps"] if step.get("uses", "").startswith("actions/upload-artifact"))
    (test,) = (step for step in jobs["build"]["steps"] if "pytest" in step.get("run", ""))
    assert test["env"]["ALGEBRANETS_DIST"] == upload["with"]["path"]
    assert jobs["build"]["steps"].index(test) < jobs["build"]["steps"].index(upload)


@pytest.mark.parametrize(
    ("tag", "version", "is_right"),
    [
        ("v1.2.3", "1.2.3", True),
        ("v1.2.4", "1.2.3", False),
        ("1.2.3", "1.2.3", False),
        ("v1.2.3.dev0", "1.2.3.dev0", False),
    ],
)
def test_a_tag_that_is_not_a_released_version_publishes_nothing(tag, version, is_right, tmp_path):
    (step,) = (step for step in steps("publish") if "TAG" in step.get("env", {}))
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {version}\n")
    python.chmod(0o755)
    environment = {**os.environ, "TAG": tag, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-e", "-c", step["run"]], env=environment, capture_output=True)
    assert (done.returncode == 0) == is_right


# Files around the package ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bug", "feature", "question"])
def test_an_issue_form_has_what_github_requires(name):
    form = yaml.safe_load((ROOT / f".github/ISSUE_TEMPLATE/{name}.yml").read_text())
    assert {"name", "description", "body"} <= form.keys()
    for field in form["body"]:
        assert field["type"] in ("markdown", "input", "textarea", "dropdown", "checkboxes")
        assert field["attributes"].get("value" if field["type"] == "markdown" else "label")
    identifiers = [field["id"] for field in form["body"] if field["type"] != "markdown"]
    assert len(set(identifiers)) == len(identifiers)


def test_addresses_of_the_project_are_those_of_pyproject():
    for path in (*ROOT.glob(".github/**/*.yml"), *ROOT.glob("*.md"), ROOT / "CITATION.cff", ROOT / "mkdocs.yml"):
        for address in re.findall(
            r"https://(?:github\.com/algebranets|algebranets\.github\.io)/[\w/]*", path.read_text()
        ):
            assert address.startswith((URLS["Repository"], URLS["Documentation"])), f"{path.name}: {address}"


def test_the_constraints_are_exact_and_agree_with_pyproject():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    pinned = {}
    for line in lines:
        requirement = Requirement(line)
        (specifier,) = requirement.specifier
        assert specifier.operator == "=="
        assert requirement.url is None
        pinned.setdefault(requirement.name.lower().replace("_", "-"), []).append(specifier.version)
    extras = PROJECT["optional-dependencies"]
    for line in [*PROJECT["dependencies"], *(line for name in extras if name != "peers" for line in extras[name])]:
        wanted = Requirement(line)
        if wanted.name == PROJECT["name"]:
            continue
        assert all(wanted.specifier.contains(version) for version in pinned[wanted.name.lower().replace("_", "-")]), (
            line
        )
