"""Keys written into TOML: only the one value changes, comments and layout stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memlint.dialects import by_name
from memlint.extract import Project, extract
from memlint.fixes.edit import apply
from memlint.fixes.sites import candidates
from memlint.fixes.toml_writer import set_key

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib  # type: ignore[import-not-found, no-redef, unused-ignore]

TITAN = """# NOTE: this toml config is a preset for 64 GPUs.
[job]
dump_folder = "./outputs"

[model]
name = 'llama3'
flavor = "8B"  # 8B, 70B or 405B

[training]
local_batch_size = 8   # rows
seq_len = 8_192
mixed_precision_param = "bfloat16"

[parallelism]
data_parallel_shard_degree = -1

[activation_checkpoint]
mode = 'selective'  # ["none", "selective", "full"]
selective_ac_option = 'op'
"""

KOHYA = """# LoRA of a subject
[model_arguments]
pretrained_model_name_or_path = "org/sdxl"

[training_arguments]
  train_batch_size = 4
  mixed_precision = "bf16" # or fp16
  gradient_checkpointing = false
  optimizer_type = "AdamW"

[network]
network_module = "networks.lora"
network_dim = 64
"""


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("training.local_batch_size", 1, "local_batch_size = 8   # rows", "local_batch_size = 1   # rows"),
        ("activation_checkpoint.mode", "full", "mode = 'selective'  # [", "mode = 'full'  # ["),
        ("training.dtype", "bfloat16", 'param = "bfloat16"\n', 'param = "bfloat16"\ndtype = "bfloat16"\n'),
        ("compile.enable", True, "option = 'op'\n", "option = 'op'\n\n[compile]\nenable = true\n"),
        ("title", "x", "64 GPUs.\n", '64 GPUs.\ntitle = "x"\n\n'),
    ],
)
def test_one_value_changes(key: str, value: Any, old: str, new: str) -> None:
    edits = set_key("t.toml", TITAN, key, value)
    assert edits is not None
    after = apply(TITAN, edits)
    assert after == TITAN.replace(old, new)
    expected = tomllib.loads(TITAN)
    *above, leaf = key.split(".")
    inner = expected
    for name in above:
        inner = inner.setdefault(name, {})
    inner[leaf] = value
    assert tomllib.loads(after) == expected


def test_what_says_so_already_is_left_alone() -> None:
    assert set_key("t.toml", TITAN, "training.seq_len", 8192) == ()
    assert set_key("t.toml", TITAN, "training", 1) is None
    assert set_key("t.toml", TITAN, "training.seq_len", None) is None
    assert set_key("t.toml", "a = [", "b", 1) is None


def test_inline_and_crlf() -> None:
    text = "a = {x = 1}\r\nb = {}\r\n"
    for key, after in (("a.y", "a = {x = 1, y = 2}\r\nb = {}\r\n"), ("b.y", "a = {x = 1}\r\nb = { y = 2}\r\n")):
        edits = set_key("t.toml", text, key, 2)
        assert edits is not None
        assert apply(text, edits) == after
    edits = set_key("t.toml", "[s]\r\nk = 1\r\n", "s.j", "t")
    assert edits is not None
    assert apply("[s]\r\nk = 1\r\n", edits) == '[s]\r\nk = 1\r\nj = "t"\r\n'


CHANGES = [
    (TITAN, "batch.micro_batch_size", 2), (TITAN, "batch.sequence_length", 4096), (TITAN, "checkpointing.mode", "full"),
    (TITAN, "checkpointing.enabled", False), (TITAN, "precision", "bf16-true"), (TITAN, "parallel.tensor", 2),
    (TITAN, "parallel.offload_params", "cpu"), (TITAN, "optimizer.in_backward", True), (TITAN, "compile", True),
    (KOHYA, "batch.micro_batch_size", 1), (KOHYA, "batch.gradient_accumulation_steps", 4), (KOHYA, "checkpointing.enabled", True),
    (KOHYA, "optimizer.name", "adamw_bnb_8bit"), (KOHYA, "model.attention", "sdpa"), (KOHYA, "precision", "bf16-true"),
    (KOHYA, "adapter.r", 16),
]  # fmt: skip


@pytest.mark.parametrize(("text", "key", "value"), CHANGES, ids=[f"{text[2:6]}-{key}" for text, key, _ in CHANGES])
def test_a_canonical_change_is_written_and_read_back(tmp_path: Path, text: str, key: str, value: Any) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    project = Project.around(str(path))
    (run,) = extract(str(path), project).runs
    ways = list(candidates(run, key, value, project))
    assert ways
    found = [extract(str(path), project, way.text).runs[0].value(key) for way in ways]
    assert value in found
    after = ways[found.index(value)].text
    comments = [line.partition("#")[2] for line in text.splitlines() if "#" in line]
    assert [line.partition("#")[2] for line in after.splitlines() if "#" in line] == comments


def test_a_dialect_of_toml_is_named() -> None:
    assert by_name("sd-scripts").NAME == "sd_scripts"
