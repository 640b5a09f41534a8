"""Facts of training arguments against what the real classes made of them, version by version (`tools/record_arguments.py`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memlint.dialects.hf_arguments import training_arguments
from memlint.dialects.trl import trl_arguments
from memlint.facts import Fact, fixed
from memlint.facts.keys import normalise
from memlint.versions import Pin, Versions

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.json"))


def entries() -> Iterator[Any]:
    for file in RECORDED:
        data = json.loads(file.read_text())
        versions = Versions({name: Pin(version, file.name) for name, version in data["versions"].items()})
        for number, entry in enumerate(data["entries"]):
            if "attributes" in entry:
                yield pytest.param(versions, entry, id=f"{file.stem}-{entry['class']}-{number}")


def facts_of(versions: Versions, entry: dict[str, Any]) -> dict[str, Fact]:
    native = {name: fixed(value) for name, value in entry["arguments"].items()}
    if entry["library"] == "trl":
        return trl_arguments(entry["class"], native, versions)
    return training_arguments(native, versions, class_name=entry["class"])


def expected(entry: dict[str, Any]) -> dict[str, Any]:
    """The canonical values that the real object's attributes mean."""
    real = entry["attributes"]
    strategy = real.get("eval_strategy", real.get("evaluation_strategy"))
    values: dict[str, Any] = {
        "batch.micro_batch_size": real["per_device_train_batch_size"],
        "batch.gradient_accumulation_steps": real["gradient_accumulation_steps"],
        "precision": "bf16-mixed" if real["bf16"] else "fp16-mixed" if real["fp16"] else "fp32",
        "checkpointing.enabled": bool(real["gradient_checkpointing"]),
        "optimizer.name": normalise("optimizer.name", real["optim"]),
        "batch.auto_find": real["auto_find_batch_size"],
        "compile": real["torch_compile"],
        "eval.enabled": strategy != "no",
    }
    if strategy != "no":
        values["eval.batch_size"] = real["per_device_eval_batch_size"]
    if real.get("use_liger_kernel"):
        values["loss.logits"] = "fused"
    if "packing" in real:
        values["batch.packing"] = real["packing"]
    if "num_generations" in real:
        values["batch.num_generations"] = real["num_generations"]
        values["batch.completion_length"] = real["max_completion_length"]
    else:
        length = real.get("max_length") or real.get("max_seq_length")
        if length is not None:
            values["batch.sequence_length"] = length
    return values


@pytest.mark.parametrize(("versions", "entry"), list(entries()))
def test_facts_are_what_the_real_class_makes_of_its_arguments(versions: Versions, entry: dict[str, Any]) -> None:
    facts = facts_of(versions, entry)
    got = {key: facts[key].value if key in facts else "absent" for key in expected(entry)}
    assert got == expected(entry)


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_fp16_with_bf16_is_refused_by_the_real_class_and_leaves_precision_unknown(file: Path) -> None:
    data = json.loads(file.read_text())
    both = [entry for entry in data["entries"] if entry["arguments"] == {"fp16": True, "bf16": True}]
    assert both
    assert all("error" in entry for entry in both)
    versions = Versions({name: Pin(version, file.name) for name, version in data["versions"].items()})
    for entry in both:
        assert not facts_of(versions, entry)["precision"].known


def test_several_version_pairs_were_recorded_on_both_sides_of_the_flips() -> None:
    pairs = {tuple(json.loads(file.read_text())["versions"][name] for name in ("transformers", "trl")) for file in RECORDED}
    assert ("5.24.0", "1.16.0") in pairs
    assert any(transformers.startswith("4.") for transformers, _ in pairs)
