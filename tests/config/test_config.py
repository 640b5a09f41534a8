"""Configuration: discovery, precedence, types, and messages with the right line."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlint.config import ConfigError, Configs, Settings, explain, settings_for, verify_comments
from memlint.source import Kind, Source

SECTION = """\
[project]
name = "x"

[tool.memlint]
gpu = "a100-80gb"
gpus = 2
host-ram = "256GB"
select = ["MEM0"]
ignore = ["MEM010", "full-logits"]
exclude = ["third_party/", "configs/*.json"]
fail-on = "warning"

[tool.memlint.models]
"acme/private-7b" = "meta-llama/Llama-2-7b-hf"

[tool.memlint.versions]
transformers = "4.57.6"

[tool.memlint.set]
"batch.sequence_length" = 2048
optimizer.name = "adamw_8bit"

[tool.memlint.per-path."configs/small/**"]
gpu = "t4"
"""


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text(SECTION)
    (tmp_path / "configs" / "small").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_key(repo: Path) -> None:
    settings = settings_for(str(repo / "train.py"))
    assert (settings.gpu, settings.gpus, settings.host_ram) == ("a100-80gb", 2, 256 * 2**30)
    assert (settings.select, settings.ignore, settings.fail_on) == (("MEM0",), ("MEM010", "full-logits"), "warning")
    assert settings.models == {"acme/private-7b": "meta-llama/Llama-2-7b-hf"}
    assert settings.versions == {"transformers": "4.57.6"}
    # Values under `set` are canonical: adamw_8bit is bitsandbytes' AdamW.
    assert settings.set == {"batch.sequence_length": 2048, "optimizer.name": "adamw_bnb_8bit"}
    assert settings.root == str(repo)


def test_per_path_settings_hold_below_their_pattern_only(repo: Path) -> None:
    assert settings_for(str(repo / "configs" / "small" / "deep" / "a.yaml")).gpu == "t4"
    assert settings_for(str(repo / "configs" / "a.yaml")).gpu == "a100-80gb"


@pytest.mark.parametrize(
    ("path", "excluded"),
    [
        ("third_party/x.py", True),
        ("deep/third_party/x.py", True),
        ("configs/ds.json", True),
        ("configs/deep/ds.json", False),
        ("train.py", False),
        ("third_party.py", False),
    ],
)
def test_exclude(repo: Path, path: str, excluded: bool) -> None:
    assert settings_for(str(repo / path)).excludes(str(repo / path)) is excluded


def test_exclude_never_matches_above_the_configuration(tmp_path: Path) -> None:
    """A checkout below a folder called `build` must not vanish because of `exclude = ["build"]`."""
    root = tmp_path / "build" / "repo"
    root.mkdir(parents=True)
    (root / "memlint.toml").write_text('exclude = ["build"]\n')
    assert not settings_for(str(root / "train.py")).excludes(str(root / "train.py"))
    assert settings_for(str(root / "train.py")).excludes(str(root / "build" / "train.py"))


def test_the_nearest_file_with_a_section_wins_alone(tmp_path: Path) -> None:
    inner = tmp_path / "pkg" / "sub"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.memlint]\ngpu = "t4"\nignore = ["MEM001"]\n')
    (tmp_path / "pkg" / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert settings_for(str(inner / "a.py")).gpu == "t4"
    (tmp_path / "pkg" / "memlint.toml").write_text('gpu = "a10g"\n')
    assert (settings_for(str(inner / "a.py")).gpu, settings_for(str(inner / "a.py")).ignore) == ("a10g", ())


def test_memlint_toml_wins_over_pyproject_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.memlint]\ngpu = "t4"\n')
    (tmp_path / "memlint.toml").write_text('gpu = "a10g"\n')
    assert settings_for(str(tmp_path / "a.py")).gpu == "a10g"


def test_extend_is_explicit_and_adds_tables(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.memlint]\ngpu = "t4"\ngpus = 4\nignore = ["MEM001"]\nexclude = ["old"]\n[tool.memlint.versions]\ntrl = "0.12"\n'
    )
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "memlint.toml").write_text(
        'extend = "../pyproject.toml"\ngpu = "a10g"\nignore = ["MEM002"]\n[versions]\npeft = "0.13"\n'
    )
    settings = settings_for(str(tmp_path / "sub" / "a.py"))
    assert (settings.gpu, settings.gpus, settings.ignore) == ("a10g", 4, ("MEM002",))
    assert settings.versions == {"trl": "0.12", "peft": "0.13"}
    # Patterns stay relative to the file that wrote them.
    assert settings.excludes(tmp_path / "old" / "a.py")


def test_extend_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "memlint.toml").write_text('gpu = "t4"\nextend = "pyproject.toml"\n')
    (tmp_path / "pyproject.toml").write_text('[tool.memlint]\nextend = "memlint.toml"\n')
    with pytest.raises(ConfigError, match="goes in a circle"):
        settings_for(str(tmp_path / "a.py"))


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('gpu = "t4"\nignroe = ["MEM001"]\n', 2, "unknown key 'ignroe'; did you mean 'ignore'?"),
        ("gpu = 4\n", 1, "expected a text, got a number (4)"),
        ('gpus = "two"\n', 1, "expected a whole number of at least 1, got a text ('two')"),
        ("gpus = true\n", 1, "expected a whole number of at least 1, got a boolean (True)"),
        ('gpu = "t4"\nselect = "MEM001"\n', 2, "expected a list of texts, got a text ('MEM001')"),
        ('fail_on = "error"\n', 1, "unknown key 'fail_on'; did you mean 'fail-on'?"),
        ('fail-on = "never"\n', 1, "expected error, warning or info, got a text ('never')"),
        ('host-ram = "much"\n', 1, "expected a size such as 256GB, got 'much'"),
        ('[set]\n"batch.micro_batch" = 4\n', 2, "unknown key 'batch.micro_batch'"),
        ('[set]\n"precision" = "bf17"\n', 2, "precision takes one of"),
        ("[models]\nx = 3\n", 2, "expected a text, got a number (3)"),
        ('[per-path."a/*"]\nselec = []\n', 2, "unknown key 'selec'; did you mean 'select'?"),
        ('[per-path."a/*"]\ngpus = 0\n', 2, "expected a whole number of at least 1, got a number (0)"),
        ('rules = ["nowhere"]\n', 1, "rules: there is no folder 'nowhere'"),
        ('gpu = "t4"\nextend = "gone.toml"\n', 2, "extend: 'gone.toml' does not exist"),
        ('gpu = "t4\n', 1, "not valid TOML"),
        ('gpu = "b47"\n', 1, "unknown GPU 'b47'"),
    ],
)
@pytest.mark.parametrize("name", ["memlint.toml", "pyproject.toml"])
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, name: str, text: str, line: int, message: str) -> None:
    if name == "pyproject.toml":
        text = "[tool.memlint]\n" + text.replace("[set]", "[tool.memlint.set]").replace("[models]", "[tool.memlint.models]")
        text, line = text.replace("[per-path", "[tool.memlint.per-path"), line + 1
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as error:
        settings_for(str(tmp_path / "a.py"))
    assert error.value.message.startswith(message)
    assert (error.value.line, Path(error.value.path).name) == (line, name)


def test_nested_and_dotted_set_are_one_key(tmp_path: Path) -> None:
    (tmp_path / "memlint.toml").write_text('[set]\n"batch.micro_batch_size" = 2\n[set.batch]\nsequence_length = 512\n')
    assert settings_for(str(tmp_path / "a.py")).set == {"batch.micro_batch_size": 2, "batch.sequence_length": 512}


def test_explicit_and_isolated(tmp_path: Path) -> None:
    (tmp_path / "memlint.toml").write_text('gpu = "t4"\n')
    other = tmp_path / "ci.toml"
    other.write_text('gpu = "a10g"\n')
    assert Configs(explicit=str(other)).settings_for(str(tmp_path / "a.py")).gpu == "a10g"
    assert Configs(isolated=True).settings_for(str(tmp_path / "a.py")) == Settings()
    with pytest.raises(ConfigError, match="no such configuration file"):
        Configs(explicit=str(tmp_path / "gone.toml")).settings_for(str(tmp_path / "a.py"))


def test_explain_names_the_origin_of_each_key(repo: Path) -> None:
    rows = {name: (value, origin) for name, value, origin in explain(repo / "configs" / "small" / "a.yaml")}
    assert rows["gpus"] == (2, "pyproject.toml:6")
    assert rows["gpu"][0] == "t4"
    assert rows["set.batch.sequence_length"] == (2048, "pyproject.toml:20")
    assert rows["models.acme/private-7b"] == ("meta-llama/Llama-2-7b-hf", "pyproject.toml:14")
    assert rows["rules"] == ([], "default")


def test_options_of_the_command_line_come_on_top(repo: Path) -> None:
    settings = settings_for(str(repo / "a.py")).with_options("--gpu", gpu="a10g", gpus=None, set={"batch.packing": True})
    assert (settings.gpu, settings.gpus) == ("a10g", 2)
    assert settings.set["batch.packing"] is True and settings.set["batch.sequence_length"] == 2048
    assert settings.origin_of("batch.packing") == "--gpu"


def comments(text: str, kind: Kind = Kind.PYTHON, path: str = "train.py") -> None:
    verify_comments(Source(path, kind, text))


@pytest.mark.parametrize("text", ["# memlint: gpu=t4\n# memlint: gpus=2\nx = 1  # memlint: set batch.micro_batch_size=4\n"])
def test_comments_that_make_sense(text: str) -> None:
    comments(text)


def test_text_that_only_looks_like_a_comment() -> None:
    comments('x = "# memlint: gpu=b47"\n')
    comments('x: "# memlint: gpu=b47"\ny: |\n  # memlint: gpu=b47\n', Kind.YAML, "a.yaml")


def test_comments_of_yaml_and_json() -> None:
    for text, kind in (("# memlint: gpu=b47\nx: 1\n", Kind.YAML), ('{\n  // memlint: gpu=b47\n  "x": 1\n}\n', Kind.JSON)):
        with pytest.raises(ConfigError, match="unknown GPU"):
            comments(text, kind)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("x = 1\n# memlint: gpu=b47\n", 2, "unknown GPU 'b47'"),
        ("# memlint: gpus=two\n", 1, "expected a whole number"),
        ("# memlint: set batch.size=4\n", 1, "unknown key 'batch.size'"),
        ("# memlint: set batch.packing\n", 1, "expected key=value"),
    ],
)
def test_a_comment_that_says_nonsense(text: str, line: int, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        comments(text)
    assert (error.value.path, error.value.line) == ("train.py", line)
    assert error.value.message.startswith(message)


def test_paths_of_models_are_relative_to_the_file_that_says_them(tmp_path: Path) -> None:
    (tmp_path / "shapes" / "mine").mkdir(parents=True)
    (tmp_path / "shapes" / "mine" / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "memlint.toml").write_text(
        '[models]\n"a/folder" = "shapes/mine"\n"a/file" = "shapes/mine/config.json"\n"a/dotted" = "./gone"\n'
        '"a/id" = "gpt2"\n"a/other" = "org/name"\n',
        encoding="utf-8",
    )
    assert settings_for(str(tmp_path / "jobs" / "train.py")).models == {
        "a/folder": str(tmp_path / "shapes" / "mine"),
        "a/file": str(tmp_path / "shapes" / "mine" / "config.json"),
        "a/dotted": str(tmp_path / "gone"),
        "a/id": "gpt2",
        "a/other": "org/name",
    }
