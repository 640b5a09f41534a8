"""The extra `[hf]`: what an installed transformers says of a configuration that memlint has no counts for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import GPT2Config, GPT2LMHeadModel, XLNetConfig, XLNetLMHeadModel

from memlint.models import hf, lookup

ROOT = Path(__file__).resolve().parents[2]


def of(tmp_path: Path, **config: Any) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return tmp_path


def test_parameters_of_a_local_configuration_are_counted(tmp_path: Path) -> None:
    found = hf.asked(lookup(str(of(tmp_path, model_type="gpt2", n_layer=3, n_embd=96, n_head=4, vocab_size=500))))
    model = GPT2LMHeadModel(GPT2Config(n_layer=3, n_embd=96, n_head=4, vocab_size=500))
    assert found.architecture is not None
    assert found.architecture.params == sum(p.numel() for p in model.parameters())
    assert found.architecture.tied
    assert ("c_attn", 96, 288, 3) in found.architecture.linears
    assert (found.architecture.layers, found.architecture.hidden_size) == (3, 96)
    assert ", counted by transformers" in found.how


def test_a_type_that_memlint_has_no_page_for(tmp_path: Path) -> None:
    found = hf.asked(lookup(str(of(tmp_path, model_type="xlnet", d_model=64, n_layer=2, n_head=4, d_inner=96, vocab_size=100))))
    assert found.exact
    assert found.architecture is not None
    model = XLNetLMHeadModel(XLNetConfig(d_model=64, n_layer=2, n_head=4, d_inner=96, vocab_size=100))
    assert found.architecture.params == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            {"model_type": "of_another_world", "num_hidden_layers": 2, "hidden_size": 8},
            "does not know the type 'of_another_world'",
        ),
        ({"model_type": "llama", "hidden_size": 10, "num_attention_heads": 3, "num_hidden_layers": 1}, "refuses it"),
    ],
)
def test_what_transformers_cannot_read_stays_as_it_was(tmp_path: Path, config: dict[str, Any], reason: str) -> None:
    before = lookup(str(of(tmp_path, **config)))
    after = hf.asked(before)
    assert reason in after.how
    assert after.architecture == before.architecture


def test_code_of_a_repository_is_never_run(tmp_path: Path) -> None:
    """`auto_map` names code beside the configuration; it is ignored."""
    (tmp_path / "evil.py").write_text("import pathlib\npathlib.Path(__file__).with_name('ran').touch()\n", encoding="utf-8")
    of(tmp_path, model_type="evil", num_hidden_layers=2, auto_map={"AutoConfig": "evil.C", "AutoModel": "evil.M"})
    assert "does not know" in hf.asked(lookup(str(tmp_path))).how
    assert not (tmp_path / "ran").exists()


def test_a_catalogued_model_is_not_asked_about() -> None:
    known = lookup("gpt2")
    assert hf.asked(known) is known


def test_the_command_line(tmp_path: Path) -> None:
    of(tmp_path, model_type="xlnet", d_model=64, n_layer=2, n_head=4, d_inner=96, vocab_size=100)
    (tmp_path / "a.yaml").write_text("base_model: .\nmicro_batch_size: 1\nsequence_len: 8\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def said(*arguments: str) -> str:
        command = [sys.executable, "-m", "memlint", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout

    assert "parameters" in said("models", ".", "--hf")
    assert "without activations, which are not known, it takes" in said("estimate", "a.yaml", "--hf")
    assert "it takes" not in said("estimate", "a.yaml")
