"""The documentation site: it builds without warnings, its links lead somewhere, and its parts are up to date."""

import doctest
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import sitegen
import torch
import write_docs
from packaging.version import Version
from sitegen import commands, figures, links, reference, regions, speed, training
from sitegen.contents import REGIONS

from algebranets.lab.bench import load
from conftest import NEWEST_TORCH

ROOT = Path(__file__).parent.parent
ADDRESS = "https://algebranets.github.io/algebranets/"
NEEDS_NEWEST_TORCH = ("torch_nn-table",)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built once."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # about another product of the theme's authors
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=quiet)
    assert result.returncode == 0, result.stderr[-3000:]
    assert "WARNING" not in result.stderr
    return folder


def test_every_link_of_the_site_leads_to_a_page_and_an_anchor(site):
    assert list(links.broken(site, ADDRESS)) == []


def test_the_link_checker_finds_missing_files_and_anchors(tmp_path):
    (tmp_path / "index.html").write_text(
        '<a href="other/#here">a</a><a href="other/#gone">b</a><a href="lost/">c</a><img src="x.png">'
        '<a href="https://elsewhere.org/x">d</a><script src="https://elsewhere.org/x.js"></script>'
    )
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text('<h2 id="here">Here</h2><a href="..">up</a>')
    (tmp_path / "other.md").write_text("[a](other.md#here), [b](other.md#gone), `[c](in_code.md)`, [d](lost.md)")
    found = [line.split(": ")[1].split()[0] for line in links.broken(tmp_path, ADDRESS)]
    assert found == ["other/#gone", "lost/", "x.png", "other.md#gone", "lost.md"]
    assert list(links.from_other_hosts(tmp_path)) == ["index.html: https://elsewhere.org/x.js"]


def test_pages_load_nothing_from_other_hosts(site):
    assert list(links.from_other_hosts(site)) == []
    for sheet in (site / "assets").rglob("*.css"):
        assert not re.search(r"url\(['\"]?https?:|@import ['\"]?https?:", sheet.read_text()), sheet.name


def test_every_page_is_in_the_navigation(site):
    """MkDocs warns about a page that is not, and warnings are errors: see ``omitted_files`` in mkdocs.yml."""
    assert "omitted_files: warn" in (ROOT / "mkdocs.yml").read_text()
    home = links.Page(site / "index.html")
    reached = {(site / link).resolve() for link in home.links if "://" not in link}
    for page in [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")]:
        name = page.relative_to(ROOT / "docs").with_suffix("")
        folder = site / (name.parent if name.name == "index" else name)
        assert (folder / "index.html").is_file(), f"{name} is not in the site"
        assert folder.resolve() in reached, f"{name} is not in the navigation"


@pytest.mark.parametrize("name", reference.MODULES)
def test_every_public_name_is_in_the_reference(site, name):
    module = importlib.import_module(name)
    page = links.Page(site / reference.page_of(name).removesuffix(".md") / "index.html")
    missing = [key for key in reference.public_names(module) if f"{name}.{key}" not in page.anchors]
    assert missing == []


def test_the_reference_has_docstrings_and_runnable_examples(site):
    text = (site / "reference" / "nn" / "index.html").read_text()
    plain = re.sub(r"<[^>]+>", "", text)
    first = inspect.cleandoc(importlib.import_module("algebranets.nn").Linear.__doc__).partition("\n")[0]
    assert re.sub(r"[`*]", "", first)[:40] in plain.replace("&lt;", "<")
    assert '<span class="gp">&gt;&gt;&gt; </span>' in text  # a prompt, which the copy button leaves out


def test_every_command_and_option_is_in_the_reference(site):
    page = links.Page(site / "reference" / "command_line" / "index.html")
    assert {path.replace(" ", "-") for path in commands.paths()} <= page.anchors
    assert "--algebra" in page.path.read_text()


def test_defaults_of_zero_and_one_are_in_the_reference():
    defaults = dict(re.findall(r"^\| `(--[\w-]+)` \|.*\| (?:`(.*)`)? \|$", commands.page(), flags=re.M))
    assert {"0", "1"} <= set(defaults.values())
    assert not {"True", "False", "None"} & set(defaults.values())


def test_a_public_module_without_a_page_is_an_error(monkeypatch):
    monkeypatch.delitem(reference.MODULES, "algebranets.nn.init")
    with pytest.raises(ValueError, match=r"init is public in algebranets\.nn, so it must be in MODULES"):
        list(reference.pages())


def test_a_row_of_a_table_of_speeds_without_measurements_is_an_error(monkeypatch):
    missing = speed.Line("conv1d", "models-h200", "conv1d", "8 x 8")
    monkeypatch.setattr(speed, "MODELS", [*speed.MODELS, missing])
    with pytest.raises(ValueError, match=r"models-h200\.jsonl must have rows of conv1d 8 x 8; it has none"):
        speed.models()
    monkeypatch.setattr(speed, "CPU", [*speed.CPU, ("linear, width 3", "linear", "512 x {}", 3)])
    with pytest.raises(ValueError, match=r"layers-cpu\.jsonl must have rows of linear 512 x \d; it has none"):
        speed.cpu()


@pytest.mark.parametrize("path", [path for path, _ in write_docs.written()], ids=lambda path: path.name)
def test_generated_regions_are_what_the_rows_give(path):
    text = path.read_text()
    if Version(torch.__version__) < NEWEST_TORCH and set(NEEDS_NEWEST_TORCH) & set(regions.names(text)):
        pytest.skip(f"the table is that of torch {NEWEST_TORCH}")
    assert regions.fill(text, REGIONS, path.name) == text, "run python tools/write_docs.py"


def test_the_numbers_in_the_readmes_prose_are_those_of_the_rows():
    """Those in the box of results, which are typed. A verdict is repeated under the heading that it belongs to."""
    text = " ".join((ROOT / "README.md").read_text().replace("\n> ", " ").split())
    box = dict(re.findall(r"\*\*(Held|Open|Did not hold)\.\*\* (.*?)(?=>|\*\*Was not)", text))
    keeps, better, whitening, matches, half = (judge() for judge in training.CLAIMS.values())
    assert keeps[0] == matches[0] == "**not confirmed**"
    assert better[0] == whitening[0] == training.OPEN
    (below,) = re.findall(r"−([\d.]+) with 25 %", keeps[1])
    assert f"{below} percentage points better than M2(R)" in box["Did not hold"]
    above, *whitened = re.findall(r"\+([\d.]+)", better[1] + whitening[1])
    assert f"{above} percentage points better than H" in box["Open"]
    assert f"whitening improves C and H by {' and '.join(whitened)}. With three seeds" in box["Open"]
    parameters, multiplies = re.match(r"small Transformer-XLs: (.*?) of the parameters and (.*?) of", half[1]).groups()
    assert f"Small Transformer-XLs over M2(R) need {parameters} of a real network's parameters" in box["Held"]
    least, most = (int(percent) / 100 for percent in re.findall(r"\d+", multiplies))
    assert f"{least:.1f} to {most:.1f} times the multiply-adds" in box["Did not hold"]
    speedups = [row.speedup for row in load(ROOT / "benchmarks" / "decode-h200.jsonl") if row.shape.startswith("1 x")]
    assert f"are {min(speedups):.0f} to {max(speedups):.0f} times as fast as real ones on an H200" in box["Held"]


def test_every_region_is_used_and_names_its_generator():
    used = [
        name
        for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        for name in regions.names(path.read_text())
    ]
    assert len(used) == len(set(used))
    assert set(REGIONS) == set(used)


def test_a_region_without_a_generator_or_an_end_is_an_error():
    begin = "<!-- generated by tools/write_docs.py: lost -->\n"
    with pytest.raises(ValueError, match=r"page\.md has a region 'lost'\. It must be one of: sum"):
        regions.fill(f"{begin}\n<!-- end -->", {"sum": lambda: "3"}, "page.md")
    with pytest.raises(ValueError, match=r"each region of page\.md must end with"):
        regions.fill(begin, {"lost": lambda: "3"}, "page.md")


def test_the_build_fills_regions_and_draws_figures_itself():
    """Whatever a page has between the marks of a region."""
    import mkdocs_hooks  # needs mkdocs, which the other tests here do not import

    page = SimpleNamespace(file=SimpleNamespace(generated_by=None, src_uri="results/training.md"))
    stale = "<!-- generated by tools/write_docs.py: cifar10 -->\n\n| C | 12.34 |\n\n<!-- end -->"
    text = mkdocs_hooks.on_page_markdown(stale, page=page, config=SimpleNamespace(repo_url="https://host/project"))
    assert "12.34" not in text
    assert "95.16 ± 0.28" in text
    html = mkdocs_hooks.on_page_content('<p><img alt="Speed" src="../../figures/speed-h200.svg" /></p>')
    assert html.startswith('<p><svg role="img"')


@pytest.mark.parametrize("name", figures.FIGURES)
def test_figures_are_what_the_rows_give(name):
    committed = (figures.FOLDER / f"{name}.svg").read_text()
    assert figures.difference(committed, figures.as_file(name)) == "", "run python tools/write_docs.py"


def test_figures_that_show_other_things_differ():
    bar = '<svg><path d="M 0 10 L 5 10" style="fill: #111"/><text x="1.25">{}</text></svg>'
    assert figures.difference(bar.format("R"), bar.format("R").replace("1.25", "2")) == ""
    assert figures.difference(bar.format("R"), bar.format("R").replace("L 5", "L 9")).startswith("path style=")
    assert figures.difference(bar.format("R"), bar.format("R").replace("#111", "#222"))
    assert figures.difference(bar.format("R"), bar.format("C")) == "text 'R' at x=1.25, and text 'C' at x=1.25"
    assert figures.difference(bar.format("R"), bar.format("R").replace("</svg>", "<g/></svg>"))


@pytest.mark.parametrize("name", [info.name for info in pkgutil.iter_modules(sitegen.__path__)])
def test_the_examples_of_the_generators_run(name):
    assert doctest.testmod(importlib.import_module(f"sitegen.{name}")).failed == 0


def test_llms_txt_lists_every_page(site):
    text = (site / "llms.txt").read_text()
    assert text.startswith("# AlgebraNets\n\n> Neural networks over algebras")
    listed = re.findall(r"^- \[[^\]]+\]\((\S+)\)(?:: .+)?$", text, flags=re.M)
    assert len(listed) == sum(line.startswith("- ") for line in text.splitlines())
    for address in listed:
        file = site / address.removeprefix(ADDRESS)
        assert file.is_file() or (file / "index.html").is_file(), address
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert pages <= {address.removeprefix(ADDRESS) for address in listed}


def test_functions_of_the_two_calls_are_in_the_files_named_beside_them():
    page = (ROOT / "docs" / "contributing" / "design.md").read_text()
    section = page.partition("## Two calls")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (?:\d\. )?`([\w.]+)` \| `([\w/.]+)` \|", section, flags=re.M)
    assert len(rows) >= 10
    for function, file in rows:
        source = (ROOT / "src" / "algebranets" / file).read_text()
        assert re.search(rf"def {function.rpartition('.')[2]}\(", source), f"there is no {function} in {file}"
