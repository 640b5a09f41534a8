"""`memlint models add ID`, as a process, against a stand-in for the hub on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conversation import ROOT, Done, Memlint

sys.path.insert(0, str(ROOT / "tests" / "models"))

from hub_server import CONFIG, Hub, hub

Add = Callable[..., Done]

PYPROJECT = """# the project
[project]
name = "x"   # its name

[tool.memlint]
gpu = "t4" # what we have

[tool.memlint.models]   # private ones
"acme/other" = "gpt2"   # same shape

[tool.ruff]
line-length = 100
"""


@pytest.fixture
def server() -> Iterator[Hub]:
    """The stand-in."""
    with hub() as running:
        running.holds("acme/new-1.5b")
        yield running


@pytest.fixture
def add(memlint: Memlint, server: Hub, tmp_path: Path) -> Add:
    """`add(*arguments)`; huggingface_hub stays out of it, also where it is installed."""
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'huggingface_hub' else find(name, *a)\n",
        encoding="utf-8",
    )
    environment = {"HF_ENDPOINT": server.url, "no_proxy": "127.0.0.1", "PYTHONPATH": f"{ROOT}:{blocked}"}

    def run(*arguments: str, cwd: Path | None = None, **more: str) -> Done:
        return memlint("models", "add", *arguments, cwd=cwd or tmp_path, env={**environment, **more})

    return run


def test_the_entry_goes_into_the_table_and_nothing_else_changes(add: Add, memlint: Memlint, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    done = add("acme/new-1.5b")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0] == ".memlint/models/acme/new-1.5b.json is fetched, pyproject.toml:10 names it"
    assert "2 layers, hidden 64, 4 heads" in done.out
    line = '"acme/new-1.5b" = ".memlint/models/acme/new-1.5b.json"\n'
    before, after = PYPROJECT.split("\n[tool.ruff]")
    assert (tmp_path / "pyproject.toml").read_text(encoding="utf-8") == f"{before}{line}\n[tool.ruff]{after}"
    assert json.loads((tmp_path / ".memlint/models/acme/new-1.5b.json").read_text(encoding="utf-8")) == CONFIG
    # A script in another folder of the project is understood from now on, without the hub.
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a.yaml").write_text(
        "base_model: acme/new-1.5b\nmicro_batch_size: 1\nsequence_len: 128\n", encoding="utf-8"
    )
    estimate = memlint("estimate", "jobs/a.yaml", "--format", "json")
    assert json.loads(estimate.out)["runs"][0]["estimate"]["peak_allocated_bytes"]["expected"] > 0
    assert "[tool.memlint.models] acme/new-1.5b -> .memlint/models/acme/new-1.5b.json" in memlint("models", "acme/new-1.5b").out


def test_adding_again_renews_the_file(add: Add, server: Hub, tmp_path: Path) -> None:
    (tmp_path / "memlint.toml").write_text('gpu = "t4"\r\n', encoding="utf-8", newline="")
    add("acme/new-1.5b")
    once = (tmp_path / "memlint.toml").read_bytes()
    assert once == b'gpu = "t4"\r\n\r\n[models]\r\n"acme/new-1.5b" = ".memlint/models/acme/new-1.5b.json"\r\n'
    server.holds("acme/new-1.5b", {**CONFIG, "num_hidden_layers": 3})
    done = add("acme/new-1.5b")
    assert "3 layers" in done.out
    assert (tmp_path / "memlint.toml").read_bytes() == once


@pytest.mark.parametrize(
    ("present", "changed"), [("", "memlint.toml"), ("[project]\nname = 'x'\n", "pyproject.toml")], ids=["nothing", "pyproject"]
)
def test_a_project_without_settings_gets_some(add: Add, tmp_path: Path, present: str, changed: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "inside").mkdir()
    if present:
        (tmp_path / "pyproject.toml").write_text(present, encoding="utf-8")
    done = add("acme/new-1.5b", cwd=tmp_path / "inside")
    assert done.code == 0, done.err
    text = (tmp_path / changed).read_text(encoding="utf-8")
    table = "[models]" if changed == "memlint.toml" else "[tool.memlint.models]"
    assert text.endswith(f'{table}\n"acme/new-1.5b" = ".memlint/models/acme/new-1.5b.json"\n')
    assert (tmp_path / ".memlint/models/acme/new-1.5b.json").exists()


def test_another_revision(add: Add, server: Hub) -> None:
    server.holds("acme/new-1.5b", {**CONFIG, "num_hidden_layers": 7}, revision="v2")
    assert "7 layers" in add("acme/new-1.5b", "--revision", "v2").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["acme/typo"], "the hub has no acme/typo that you may read (misspelt, or private: set HF_TOKEN)"),
        (["acme/gated"], "acme/gated is gated: accept its terms at"),
        (["acme/gguf"], "acme/gguf has no config.json"),
        (["not an id"], "'not an id' is not the id of a repository on the hub (org/name)"),
        (["../../etc/passwd"], "is not the id of a repository"),
        (["a/.."], "is not the id of a repository"),
        (["acme/new-1.5b", "--revision", "a b?c"], "is not a branch, tag or commit"),
        ([], "the following arguments are required: ID (see memlint models add --help)"),
    ],
)
def test_what_goes_wrong_is_one_line_and_nothing_is_written(
    add: Add, server: Hub, tmp_path: Path, arguments: list[str], message: str
) -> None:
    server.refuses("acme/gated", 403, "GatedRepo")
    server.refuses("acme/gguf", 404, "EntryNotFound")
    done = add(*arguments)
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert message in line
    assert {file.name for file in tmp_path.iterdir()} == {"blocked"}


def test_no_network(add: Add, server: Hub) -> None:
    done = add("acme/new-1.5b", HF_ENDPOINT="http://127.0.0.1:9")
    assert (done.code, done.out) == (2, "")
    assert "the hub cannot be reached at http://127.0.0.1:9" in done.err
    assert "HF_HUB_OFFLINE is set" in add("acme/new-1.5b", HF_HUB_OFFLINE="1").err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ('[models]\n"acme/new-1.5b" = "gpt2"\n', "memlint.toml:2 says already what acme/new-1.5b is: gpt2"),
        ('models."acme/x" = "gpt2"\n', "memlint.toml cannot be extended safely"),
        ("[models\n", "memlint.toml:1"),
    ],
)
def test_settings_that_stay_as_they_are(add: Add, server: Hub, tmp_path: Path, settings: str, message: str) -> None:
    (tmp_path / "memlint.toml").write_text(settings, encoding="utf-8")
    done = add("acme/new-1.5b")
    assert done.code == 2
    assert message in done.err
    assert (tmp_path / "memlint.toml").read_text(encoding="utf-8") == settings
    assert server.asked == []
    assert not (tmp_path / ".memlint").exists()


def test_nothing_else_speaks_with_the_hub(memlint: Memlint, server: Hub, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("base_model: acme/unknown-9x\nmicro_batch_size: 1\nsequence_len: 8\n", encoding="utf-8")
    for command in (["check", "a.yaml"], ["estimate", "a.yaml"], ["facts", "a.yaml"], ["models", "acme/unknown-9x"]):
        memlint(*command, env={"HF_ENDPOINT": server.url})
    assert server.asked == []
