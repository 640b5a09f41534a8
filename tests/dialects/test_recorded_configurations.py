"""Facts of configurations against what the real loaders made of the same texts (`tools/record_configurations.py`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memlint.dialects.peft import adapter_facts
from memlint.extract import extract
from memlint.facts import TrainingRun, fixed
from memlint.versions import NEWEST

RECORDED = Path(__file__).parent / "recorded" / "configurations"
OPTIMIZERS = {
    ("torch.optim.AdamW", True): "adamw_torch_fused", ("torch.optim.AdamW", False): "adamw_torch",
    ("bitsandbytes.optim.PagedAdamW8bit", True): "paged_adamw_8bit",
}  # fmt: skip
DTYPES = {"bf16": "bfloat16", "fp32": "float32"}


def entries(library: str) -> list[Any]:
    (file,) = RECORDED.glob(f"{library}-*.json")
    data = json.loads(file.read_text())
    return [pytest.param(entry, id=f"{file.stem}-{number}") for number, entry in enumerate(data["entries"])]


def run_of(folder: Path, text: str, name: str = "c.yaml") -> TrainingRun:
    (folder / name).write_text(text)
    (run,) = extract(str(folder / name)).runs
    return run


def values(run: TrainingRun, expected: dict[str, Any]) -> dict[str, Any]:
    return {key: run.value(key, "absent") for key in expected}


def test_the_newest_known_versions_were_recorded() -> None:
    names = {file.stem for file in RECORDED.glob("*.json")}
    assert {f"{library}-{NEWEST[library]}" for library in ("accelerate", "deepspeed", "peft")} <= names
    assert {name.rpartition("-")[0] for name in names} == {"accelerate", "deepspeed", "peft", "torchtune", "litgpt"}


@pytest.mark.parametrize("entry", entries("accelerate"))
def test_accelerate(entry: dict[str, Any], tmp_path: Path) -> None:
    run = run_of(tmp_path, entry["text"])
    if "refused" in entry:
        assert [problem.name for problem in run.problems] == ["unknown-key"]
        return
    real = entry["real"]
    expected: dict[str, Any] = {
        "parallel.nodes": real["num_machines"],
        "parallel.gpus": real["num_processes"] // real["num_machines"],
        "precision": {"no": "fp32", "bf16": "bf16-mixed", "fp16": "fp16-mixed"}[real["mixed_precision"]],
    }
    if real["use_fsdp"]:
        sharding = real["sharding"].lower() if real["version"] == 1 else "full_shard" if real["reshard"] else "shard_grad_op"
        expected |= {
            "parallel.strategy": f"fsdp{real['version']}",
            "parallel.fsdp_sharding": sharding,
            "parallel.reshard_after_forward": sharding == "full_shard",
            "parallel.offload_params": "cpu" if real["offload"] else "none",
            "parallel.wrap_policy": {"None": "none", "transformer_auto_wrap_policy": "transformer"}[real["wrap"]],
        }
        if real["checkpointing"]:
            expected["checkpointing.enabled"] = True
    elif real["use_deepspeed"]:
        # DeepSpeedPlugin: stage 2 and no offload where the launcher was told nothing (ACCELERATE_DEEPSPEED_ZERO_STAGE, ...)
        expected |= {
            "parallel.strategy": f"zero{real['zero_stage'] or 2}",
            "parallel.offload_optimizer": real["offload_optimizer_device"] or "none",
            "parallel.offload_params": real["offload_param_device"] or "none",
            "batch.gradient_accumulation_steps": real["gradient_accumulation_steps"] or "absent",
        }
    else:
        expected["parallel.strategy"] = "ddp" if real["multi_gpu"] else "none"
    assert values(run, expected) == expected


@pytest.mark.parametrize("entry", entries("deepspeed"))
def test_deepspeed(entry: dict[str, Any], tmp_path: Path) -> None:
    run = run_of(tmp_path, entry["text"], "ds.json")
    if "refused" in entry:
        assert run.problems
        return
    real = entry["real"]
    zero = real["zero"]
    expected: dict[str, Any] = {
        "batch.micro_batch_size": real["micro"],
        "parallel.strategy": f"zero{zero['stage']}" if zero["stage"] else "ddp",
    }
    if real["bf16"] or real["fp16"]:
        expected["precision"] = "bf16-mixed" if real["bf16"] else "fp16-mixed"
    if zero["stage"]:
        expected |= {
            "parallel.offload_optimizer": (zero["offload_optimizer"] or {}).get("device") or "none",
            "parallel.offload_params": (zero["offload_param"] or {}).get("device") or "none",
            "parallel.reduce_bucket_size": zero["reduce_bucket_size"],
            "parallel.allgather_bucket_size": zero["allgather_bucket_size"],
            "parallel.overlap_comm": zero["overlap_comm"],
            "parallel.contiguous_gradients": zero["contiguous_gradients"],
        }
    if zero["stage"] == 3:
        names = ("prefetch_bucket_size", "param_persistence_threshold", "max_live_parameters", "max_reuse_distance")
        expected |= {f"parallel.{name}": zero[name] for name in names}
        if zero["gather_16bit_weights_on_model_save"]:
            expected["parallel.gather_weights_on_save"] = True
    assert values(run, expected) == expected


@pytest.mark.parametrize("entry", entries("peft"))
def test_peft(entry: dict[str, Any]) -> None:
    real = entry["real"]
    facts = adapter_facts(entry["class"], {name: fixed(value) for name, value in entry["arguments"].items()})
    rank = real.get("init_r", real.get("r"))
    if rank is not None:
        assert facts["adapter.r"].value == rank
    for key, name in (("adapter.alpha", "lora_alpha"), ("adapter.dropout", "lora_dropout")):
        if name in real and key in facts:
            assert facts[key].value == real[name]
    if "target_modules" in real and real["target_modules"] is None:
        assert not facts["adapter.target_modules"].known  # picked by the model's type
    elif "target_modules" in real:
        named = facts["adapter.target_modules"].value
        assert (sorted(named) if isinstance(named, list) else named) == real["target_modules"]
    assert (facts["adapter.method"].value == "dora") == bool(real.get("use_dora"))
    assert ("adapter.modules_to_save" in facts) == bool(real.get("modules_to_save"))
    assert ("adapter.prompt_length" in facts) == ("num_virtual_tokens" in real)


@pytest.mark.parametrize("entry", entries("torchtune"))
def test_torchtune(entry: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(entry["text"])
    words = " ".join(f"'{word}'" for word in entry["overrides"])
    run = run_of(tmp_path, f"tune run recipe.py --config c.yaml {words}\n", "launch.sh")
    real = entry["real"]
    config = real["config"]
    expected: dict[str, Any] = {
        "batch.micro_batch_size": config["batch_size"],
        "batch.gradient_accumulation_steps": config.get("gradient_accumulation_steps", 1),
        "batch.packing": config["dataset"]["packed"],
        "batch.sequence_length": config["tokenizer"]["max_seq_len"],
        "checkpointing.enabled": config["enable_activation_checkpointing"],
        "model.dtype": DTYPES[config["dtype"]],
        "optimizer.name": OPTIMIZERS[config["optimizer"]["_component_"], config["optimizer"]["fused"]],
        "adapter.method": "lora" if real["adapted"] else "none",
    }
    if real["adapted"]:
        # the MLP's linears are w1, w2 and w3 there
        mlp = ["down_proj", "gate_proj", "up_proj"] if "w1" in real["adapted"] else []
        attention = [{"output_proj": "o_proj"}.get(name, name) for name in real["adapted"] if not name.startswith("w")]
        expected |= {"adapter.r": real["rank"], "adapter.target_modules": sorted([*attention, *mlp])}
    got = values(run, expected)
    if real["adapted"]:
        got["adapter.target_modules"] = sorted(got["adapter.target_modules"])
    assert {**got, "batch.sequence_length": run.value("batch.sequence_length")} == expected


@pytest.mark.parametrize("entry", entries("litgpt"))
def test_litgpt(entry: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(entry["text"])
    run = run_of(tmp_path, f"litgpt {entry['command']} --config c.yaml\n", "launch.sh")
    if "refused" in entry:
        assert "unknown-key" in [problem.name for problem in run.problems]
        return
    real = entry["real"]
    train = real["train"]
    expected: dict[str, Any] = {
        "batch.micro_batch_size": train["micro_batch_size"],
        "batch.sequence_length": train["max_seq_length"],
        "parallel.gpus": real["devices"] if isinstance(real["devices"], int) else None,
    }
    if isinstance(real["devices"], int):
        # TrainArgs.batch_size and gradient_accumulation_iters: the global batch over the devices, over the micro batch
        expected["batch.gradient_accumulation_steps"] = train["global_batch_size"] // real["devices"] // train["micro_batch_size"]
    if real["precision"] is not None:
        expected["precision"] = real["precision"]
    if "lora_r" in real:
        parts = {"lora_query": "q_proj", "lora_key": "k_proj", "lora_value": "v_proj", "lora_projection": "o_proj", "lora_mlp": "mlp",
                 "lora_head": "lm_head"}  # fmt: skip
        expected |= {
            "adapter.r": real["lora_r"], "adapter.alpha": real["lora_alpha"], "adapter.dropout": real["lora_dropout"],
            "adapter.target_modules": [module for name, module in parts.items() if real[name]],
            "quantization.method": "bnb_4bit" if real["quantize"] else "none",
        }  # fmt: skip
    assert {key: run.value(key) for key in expected} == expected
