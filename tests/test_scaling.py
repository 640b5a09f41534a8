"""`memlint estimate --gpus 1,2,4`: what each of so many GPUs needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memlint.cli.estimate import run

RUN = """\
schema: memlint.run.v1
model.id: meta-llama/Llama-2-7b-hf
model.dtype: bfloat16
model.attention: flash_attention_2
precision: bf16-true
objective: causal_lm
batch.micro_batch_size: 1
batch.sequence_length: 512
batch.packing: true
checkpointing.enabled: true
optimizer.name: adamw_torch_fused
framework.name: transformers
"""
PARAMETERS = 6_738_415_616
GIB = 1 << 30


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(RUN)
    return path


def cells(text: str, strategy: str) -> list[str]:
    """The figures of a row of the Markdown table."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {strategy} |"))
    return [cell.strip(" *") for cell in line.strip("|").split("|")[1:]]


def test_the_table_has_a_row_for_each_strategy(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--isolated", "--gpu", "h100-80gb", "--gpus", "1,2,8", "--format", "markdown", str(document)]) == 0
    text = capsys.readouterr().out
    assert "| GPUs | 1 | 2 | 8 |" in text
    alone, two, eight = (float(cell) for cell in cells(text, "FSDP2"))
    # bfloat16 weights, gradients and two moments are 8 bytes per parameter, divided by the ranks
    assert alone > 8 * PARAMETERS / GIB > two > 8 * PARAMETERS / 2 / GIB
    assert two - eight == pytest.approx(8 * PARAMETERS * (1 / 2 - 1 / 8) / GIB, rel=0.15)
    assert cells(text, "FSDP2, parameters on the CPU")[0] == "–"
    # float32 masters and moments: 12 bytes per parameter of the partition beside 2 for all of them
    assert float(cells(text, "ZeRO-2")[2]) > (2 + (12 + 4) / 8) * PARAMETERS / GIB


def test_programs_get_bytes(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--isolated", "--gpu", "h100-80gb", "--gpus", "1,2", "--format", "json", str(document)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["gpus"]) == ("memlint.scaling.v1", [1, 2])
    (one,) = found["runs"]
    assert one["model"] == "meta-llama/Llama-2-7b-hf"
    ddp, fsdp = ({s["name"]: s["needed_bytes"] for s in one["strategies"]}[name] for name in ("DDP", "FSDP2"))
    assert ddp[0] == fsdp[0] > 8 * PARAMETERS  # on one GPU nothing is divided
    assert ddp[1] > 10 * PARAMETERS > fsdp[1]  # DDP's buckets are a second copy of the gradients


def test_the_chart_marks_the_card(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--isolated", "--gpu", "h100-80gb", "--gpus=1,4", str(document)]) == 0
    text = capsys.readouterr().out
    assert "DDP" in text
    assert "ZeRO-3, optimizer on the CPU" in text
    assert all("│" in line for line in text.splitlines() if line.endswith("GiB"))
