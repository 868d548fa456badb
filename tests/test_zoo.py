"""`create(pretrained=...)` from files and URLs with their SHA-256, and the zoo's tool and pages."""

import doctest
import errno
import hashlib
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import model_zoo
import pytest
import torch
from typer.testing import CliRunner

import algebranets as an
from algebranets.conversion import create as create_from_source
from algebranets.lab.cli import app
from algebranets.lab.train import RunFolder
from algebranets.models.weights import describe

ROOT = Path(__file__).parent.parent
WEIGHTS = sorted((ROOT / "zoo").glob("*.safetensors"))
SMALL = {"hidden_size": 16, "num_readouts": 1, "vocab_size": 20}


def publish(path, algebra=an.M2R, **options):
    model = an.models.create("gru_lm", algebra=algebra, **SMALL)
    an.models.publish(model, "gru_lm", algebra, SMALL, path, **options)
    return model


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "gru_lm-M2R.safetensors"
    publish(path)
    return path


@pytest.fixture
def web(tmp_path, monkeypatch):
    """The address of a server for ``tmp_path``, its log of requested paths, and an empty cache of torch.hub."""
    requests = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            requests.append(self.path)

    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path / "hub"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", requests
    server.shutdown()
    server.server_close()


def cached(tmp_path):
    return sorted(path.name for path in (tmp_path / "hub").rglob("*") if path.is_file())


# Files ----------------------------------------------------------------------------------------------------------------


def test_a_path_a_path_with_its_sha256_and_a_file_url_give_the_stored_model(file):
    tokens = torch.randint(20, (2, 5))
    wanted = an.models.load(file)(tokens)[0]
    for source in (
        file,
        str(file),
        f"{file}#sha256={digest(file)}",
        file.as_uri(),
        f"{file.as_uri()}#sha256={digest(file).upper()}",
    ):
        model = an.models.create("gru_lm", algebra="M2R", pretrained=source)
        assert torch.equal(model(tokens)[0], wanted)
        assert not model.training


def test_options_come_from_the_file_and_those_that_are_given_must_agree(file):
    assert an.models.create("gru_lm", pretrained=file).algebra == an.M2R
    model = an.models.create("gru_lm", algebra=an.M2R, hidden_size=16, lowering="reference", pretrained=file)
    assert model.gru.lowering == "reference"
    other = an.Algebra.from_table(an.H.to_dict() | {"name": "M2R"})
    for options, message in (
        ({"algebra": "H"}, r"gru_lm-M2R.safetensors holds a gru_lm with algebra=M2R; got algebra=H\. Leave out"),
        ({"algebra": other}, r"algebra=M2R; got algebra=M2R \(another algebra of that name\)"),
        ({"hidden_size": 32}, r"holds a gru_lm with hidden_size=16; got hidden_size=32"),
        ({"hidden": 16}, r"gru_lm has no option 'hidden'\. Did you mean 'hidden_size'"),
    ):
        with pytest.raises(ValueError, match=message):
            an.models.create("gru_lm", pretrained=file, **options)
    with pytest.raises(ValueError, match=r"holds a gru_lm; got the name 'resnet18'"):
        an.models.create("resnet18", algebra="M2R", pretrained=file)


def test_an_option_that_the_file_does_not_name_has_its_default(tmp_path):
    path = tmp_path / "weights.safetensors"
    model = an.models.create("cifar_resnet", algebra="H", num_blocks=1)
    an.models.publish(model, "cifar_resnet", an.H, {"num_blocks": 1}, path)
    an.models.create("cifar_resnet", algebra="H", width=1, pretrained=path)
    with pytest.raises(ValueError, match=r"holds a cifar_resnet with width=1\.0; got width=0\.5"):
        an.models.create("cifar_resnet", algebra="H", width=0.5, pretrained=path)


def test_bad_sources_are_errors_that_say_what_to_give(file, tmp_path):
    wrong = "0" * 64
    for source, message in (
        (f"{file}#sha256={wrong}", f"must have the SHA-256 {wrong}; it has {digest(file)}"),
        (f"{file}#sha256=12", "a SHA-256 must be 64 hexadecimal digits"),
        (f"{tmp_path}/none#sha256={wrong}", "there is no such file"),
        (f"{tmp_path}/none", "does not exist"),
        ("https://example.org/x.safetensors", "must be followed by the SHA-256 of the file"),
        (f"ftp://example.org/x#sha256={wrong}", "must be a path or a URL of https, http or file"),
        (True, "must be a path or a URL of https, http or file; got True"),
        ("HTTPS://example.org/x.safetensors", "must be followed by the SHA-256 of the file"),
        ("http://[", r"'http://\[' must be a valid URL"),
        (f"file://elsewhere{file}", "must be 'file://' and an absolute path on this machine.* got 'file://elsewhere/"),
        ("file://~/x.safetensors", "must be 'file://' and an absolute path on this machine"),
        ("file:///a%00b", "must be 'file://' and an absolute path on this machine"),
        ("file:///a?b", r"'\?' is written %3F"),
    ):
        with pytest.raises(ValueError, match=message):
            an.models.create("gru_lm", algebra="M2R", pretrained=source)


def test_an_error_of_the_callers_own_options_does_not_blame_the_file(file, tmp_path):
    with pytest.raises(ValueError, match=r"lowering must be .*bogus") as caught:
        an.models.create("gru_lm", pretrained=file, lowering="bogus")
    assert file.name not in str(caught.value)
    damaged = tmp_path / "damaged.safetensors"
    model = an.models.create("gru_lm", algebra="M2R", **SMALL)
    an.models.publish(model, "gru_lm", an.M2R, SMALL | {"hidden_size": 17}, damaged)
    with pytest.raises(ValueError, match=r"damaged\.safetensors"):
        an.models.create("gru_lm", pretrained=damaged, lowering="reference")


def test_weights_are_stored_in_a_floating_point_type(tmp_path):
    for dtype in (torch.int8, torch.cfloat, "float16"):
        with pytest.raises(ValueError, match=r"dtype must be a floating-point type: torch\.float64, .* Give one of"):
            publish(tmp_path / "x.safetensors", dtype=dtype)
    assert list(tmp_path.iterdir()) == []


def test_a_source_from_a_downloaded_folder_cannot_name_weights(file):
    with pytest.raises(ValueError, match="must not have the option 'pretrained'"):
        create_from_source("algebranets:gru_lm", algebra="M2R", pretrained=str(file))


# The web --------------------------------------------------------------------------------------------------------------


def test_a_download_is_kept_and_checked_again_before_it_is_used(file, web, tmp_path):
    address, requests = web
    url = f"{address}/{file.name}#sha256={digest(file)}"
    an.models.create("gru_lm", algebra="M2R", pretrained=url)
    model = an.models.create("gru_lm", algebra="M2R", pretrained=url)
    assert torch.equal(model.head.weight, an.models.load(file).head.weight)
    assert len(requests) == 1
    (name,) = cached(tmp_path)
    assert name == f"{digest(file)[:16]}-{file.name}"
    kept = tmp_path / "hub" / "checkpoints" / name
    kept.write_bytes(kept.read_bytes()[:-1])  # damaged on the disk
    an.models.create("gru_lm", algebra="M2R", pretrained=url)
    assert digest(kept) == digest(file)
    assert len(requests) == 2


def test_a_download_with_another_sha256_is_not_kept(file, web, tmp_path):
    address, _ = web
    with pytest.raises(ValueError, match=f"must have the SHA-256 {'a' * 64}; it has {digest(file)}. The file was not"):
        an.models.create("gru_lm", algebra="M2R", pretrained=f"{address}/{file.name}#sha256={'a' * 64}")
    with pytest.raises(ValueError, match=r"none could not be downloaded: .*404"):
        an.models.create("gru_lm", algebra="M2R", pretrained=f"{address}/none#sha256={'a' * 64}")
    assert cached(tmp_path) == []


def test_a_server_that_refuses_the_connection_is_named_in_the_error(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path / "hub"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # it does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/x"
        with pytest.raises(ValueError, match=f"{url} could not be downloaded: .*refused"):
            an.models.create("gru_lm", algebra="M2R", pretrained=f"{url}#sha256={'a' * 64}")


def test_threads_can_download_the_same_weights_at_the_same_time(file, web, tmp_path):
    address, _ = web
    url = f"{address}/{file.name}#sha256={digest(file)}"
    with ThreadPoolExecutor(8) as pool:
        models = list(pool.map(lambda _: an.models.create("gru_lm", pretrained=url), range(8)))
    assert len({model.head.weight.sum().item() for model in models}) == 1
    assert cached(tmp_path) == [f"{digest(file)[:16]}-{file.name}"]


def test_the_name_of_a_long_address_is_cut_and_safe(file, web, tmp_path):
    address, _ = web
    (tmp_path / ("x" * 200 + ".safetensors")).write_bytes(file.read_bytes())
    for url in (f"{address}/{'x' * 200}.safetensors", f"{address}/a%2F..%2F{file.name}?token=secret"):
        an.models.create("gru_lm", pretrained=f"{url}#sha256={digest(file)}")
    start = digest(file)[:16]
    assert cached(tmp_path) == sorted([f"{start}-{'x' * 88}.safetensors", f"{start}-{file.name}"])


class Strange(BaseHTTPRequestHandler):
    """It announces more bytes than it sends, or redirects to a file of the client's machine."""

    def do_GET(self):
        self.send_response(200 if self.path == "/short" else 302)
        self.send_header(*(("Content-Length", "1000") if self.path == "/short" else ("Location", "file:///etc/hosts")))
        self.end_headers()
        if self.path == "/short":
            self.wfile.write(b"x" * 10)

    def log_message(self, *_):
        pass


@pytest.mark.parametrize(
    ("path", "reason"),
    [("short", "the connection ended 990 bytes before the end"), ("moved", "redirect.* not allowed|not allowed")],
)
def test_an_interrupted_download_and_a_redirect_to_a_local_file_are_errors(path, reason, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path / "hub"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Strange)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/{path}"
    try:
        with pytest.raises(ValueError, match=f"{path} could not be downloaded: .*({reason})"):
            an.models.create("gru_lm", algebra="M2R", pretrained=f"{url}#sha256={'a' * 64}")
    finally:
        server.shutdown()
        server.server_close()
    assert cached(tmp_path) == []


def test_a_full_disk_is_not_called_an_error_of_the_address(file, web, monkeypatch):
    url, real_open = f"{web[0]}/{file.name}#sha256={digest(file)}", Path.open

    def full(path, mode="r", *arguments, **options):
        if mode == "wb":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real_open(path, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(OSError, match="No space left on device"):
        an.models.create("gru_lm", pretrained=url)


# Half precision -------------------------------------------------------------------------------------------------------


def test_half_precision_halves_the_file_and_loads_as_float32(tmp_path):
    files = [tmp_path / name for name in ("whole.safetensors", "half.safetensors")]
    model = an.models.create("cifar_resnet", algebra="H", num_blocks=1)
    for path, dtype in zip(files, (None, torch.float16), strict=True):
        an.models.publish(model, "cifar_resnet", an.H, {"num_blocks": 1}, path, dtype=dtype)
    assert files[1].stat().st_size < 0.7 * files[0].stat().st_size
    loaded = an.models.load(files[1])
    assert {parameter.dtype for parameter in (*loaded.parameters(), *model.parameters())} == {torch.float32}
    assert torch.equal(loaded.stem[0].weight, model.stem[0].weight.half().float())
    assert torch.equal(loaded.stem[1].weight, model.stem[1].weight)  # of a norm


def test_a_weight_that_half_precision_cannot_hold_is_an_error(tmp_path):
    model = an.models.create("gru_lm", algebra="H", **SMALL)
    torch.nn.init.constant_(model.head.weight, 1e5)
    with pytest.raises(ValueError, match=r"head.weight has the value 1e\+05, which it cannot hold: leave out dtype"):
        an.models.publish(model, "gru_lm", an.H, SMALL, tmp_path / "x.safetensors", dtype=torch.float16)
    assert not (tmp_path / "x.safetensors").exists()


# The zoo --------------------------------------------------------------------------------------------------------------


def test_the_tool_turns_a_run_into_weights_a_card_and_a_row(tmp_path, capsys):
    pytest.importorskip("huggingface_hub")
    run, zoo = tmp_path / "run", tmp_path / "zoo"
    settings = ["steps=3", "evaluations=1", "model.hidden_size=16", "data.name=" + str(tmp_path / "text.txt")]
    (tmp_path / "text.txt").write_text("She sells sea shells by the sea shore. " * 600)
    given = [word for setting in settings for word in ("--set", setting)]
    trained = CliRunner().invoke(app, ["train", "char-lm", "--algebra", "M2R", *given, "--out", str(run)])
    assert trained.exit_code == 0, trained.output
    model_zoo.main(["--zoo", str(zoo), "add", str(run)])
    (file,) = zoo.iterdir()
    notes = describe(file)[1]["notes"]
    assert "--out" not in notes["result"]["command"]
    assert notes["result"]["value"] == pytest.approx(RunFolder(run).finished().value, rel=1e-2)  # of rounded weights
    assert f"bpc {notes['result']['value']:.4f}" in capsys.readouterr().out
    model_zoo.main(["--zoo", str(zoo), "pages"])
    index, card = (zoo / "README.md").read_text(), file.with_suffix(".md").read_text()
    assert f"| `{digest(file)}` |" in index
    assert notes["result"]["command"] in index
    assert f"{notes['result']['value']:.3f} bits per character" in index
    assert "the weights in this file, with float32 arithmetic" in card
    assert f"zoo/{file.name}#sha256={digest(file)}" in card
    assert "Bytes of text as whole numbers from 0 to 255" in card


@pytest.mark.skipif(not WEIGHTS, reason="the weights are not in this copy of the project")
def test_the_zoos_pages_are_what_the_tool_writes():
    pytest.importorskip("huggingface_hub")
    pages = model_zoo.pages()
    assert {path.name: path.read_text() for path in (ROOT / "zoo").glob("*.md")} == {
        path.name: text for path, text in pages.items()
    }, "run: python tools/model_zoo.py pages"


@pytest.mark.parametrize("path", WEIGHTS, ids=lambda path: path.stem)
def test_the_zoos_weights_are_small_and_compute(path):
    assert path.stat().st_size < 10e6
    name, algebra, _, result = model_zoo.read(path)
    model = an.models.create(name, algebra=algebra, pretrained=f"{path}#sha256={digest(path)}")
    assert sum(parameter.numel() for parameter in model.parameters()) == result["parameters"]
    inputs = torch.randn(1, 3, 32, 32) if result["metric"] == "accuracy" else torch.zeros(1, 3, dtype=torch.long)
    with torch.no_grad():
        outputs = model(inputs)
    assert (outputs if result["metric"] == "accuracy" else outputs[0]).isfinite().all()


@pytest.mark.parametrize("path", WEIGHTS, ids=lambda path: path.stem)
def test_the_statement_of_a_card_loads_the_weights(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    code = path.with_suffix(".md").read_text().partition("```python\n")[2].partition("```")[0]
    local, _, remote = code.partition("\n# or from the web\n")
    found = {}
    exec(local, found)
    assert sum(weight.numel() for weight in found["model"].parameters()) == model_zoo.read(path)[3]["parameters"]
    assert f"{path.name}#sha256={digest(path)}" in remote


def test_the_examples_of_the_tool_run():
    assert doctest.testmod(model_zoo).failed == 0
