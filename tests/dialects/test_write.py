"""Writing is reading backwards: what `write` gives for a canonical value is read back as that value."""

from __future__ import annotations

from typing import Any

import pytest

from memlint.dialects import by_name
from memlint.dialects.settle import settle
from memlint.facts import Fact, fixed

NATIVE: dict[str, dict[str, Any]] = {
    "axolotl": {
        "base_model": "a/b", "micro_batch_size": 4, "sequence_len": 2048, "adapter": "qlora", "load_in_4bit": True, "bf16": True,
        "lora_r": 8,
    },
    "llama_factory": {
        "model_name_or_path": "a/b", "stage": "sft", "finetuning_type": "lora", "quantization_bit": 4, "cutoff_len": 1024,
        "bf16": True,
    },
    "llama_factory_v1": {"model": "a/b", "train_dataset": "d", "micro_batch_size": 2, "peft_config.name": "lora"},
    "torchtune": {
        "model._component_": "torchtune.models.llama2.lora_llama2_7b", "model.lora_attn_modules": ["q_proj"], "batch_size": 4,
        "dtype": "fp32", "optimizer._component_": "torch.optim.SGD", "loss._component_": "torch.nn.CrossEntropyLoss",
        "tokenizer.max_seq_len": 512,
    },
    "litgpt": {"checkpoint_dir": "checkpoints/a/b", "precision": "32-true", "train.micro_batch_size": 2, "quantize": "bnb.nf4",
               "lora_r": 8, "devices": 1},
    "ms_swift": {"model": "a/b", "tuner_type": "lora", "torch_dtype": "float16", "quant_method": "bnb", "quant_bits": 4},
    "verl": {"model.partial_pretrain": "a/b", "data.micro_batch_size_per_gpu": 4, "data.max_length": 512, "trainer.nnodes": 1},
    "verl_ppo": {"actor_rollout_ref.model.path": "a/b", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
                 "actor_rollout_ref.actor.strategy": "fsdp2", "actor_rollout_ref.model.lora_rank": 8},
    "megatron_yaml": {"MODEL_ARGS.--num-layers": 2, "MODEL_ARGS.--hidden-size": 64, "MODEL_ARGS.--num-attention-heads": 4,
                      "MODEL_ARGS.--micro-batch-size": 4, "MODEL_ARGS.--seq-length": 512},
    "trl_yaml": {"model_name_or_path": "a/b", "max_length": 512, "learning_rate": 1e-4, "use_peft": True, "load_in_4bit": True},
    "deepspeed": {"zero_optimization.stage": 2, "train_micro_batch_size_per_gpu": 4},
    "accelerate": {"distributed_type": "FSDP", "num_processes": 2},
    "open_instruct": {"model_name_or_path": "a/b", "per_device_train_batch_size": 4, "use_lora": True, "max_seq_length": 512},
    "fsdp_qlora": {"batch_size": 4},
    "ludwig": {"model_type": "llm", "base_model": "a/b", "trainer.type": "finetune", "adapter.type": "lora",
    "quantization.bits": 4},
    "openrlhf": {"train.micro_batch_size": 4},
    "torchtitan": {"model.name": "llama3", "model.flavor": "8B", "training.local_batch_size": 4, "training.seq_len": 2048},
    "megatron": {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "micro_batch_size": 4, "seq_length": 512},
    "megatron_bridge": {"train.micro_batch_size": 4, "dataset.seq_length": 512, "model.tensor_model_parallel_size": 1},
    "nemo": {"model.micro_batch_size": 4, "model.tensor_model_parallel_size": 1, "model.encoder_seq_length": 512,
             "trainer.precision": "bf16", "model.megatron_amp_O2": True, "model.peft.peft_scheme": "lora"},
    "unsloth_studio": {"model": "a/b", "training.max_seq_length": 512, "training.batch_size": 4,
                       "training.gradient_checkpointing": "none", "lora.lora_r": 16},
    "lightning_cli": {"trainer.precision": "32-true", "trainer.max_epochs": 1, "model.class_path": "m.M", "data.batch_size": 4},
    "sd_scripts": {"pretrained_model_name_or_path": "a", "network_module": "networks.lora", "train_batch_size": 4},
    "run_yaml": {"schema": "memlint.run.v1", "model.id": "a/b"},
}  # fmt: skip

CHANGES: tuple[tuple[str, Any], ...] = (
    ("checkpointing.enabled", True), ("checkpointing.enabled", False), ("precision", "bf16-mixed"), ("precision", "bf16-true"),
    ("precision", "fp16-mixed"), ("batch.micro_batch_size", 1), ("batch.gradient_accumulation_steps", 16),
    ("batch.sequence_length", 256), ("batch.packing", True), ("optimizer.name", "adamw_bnb_8bit"),
    ("optimizer.name", "paged_adamw_8bit"), ("model.attention", "flash_attention_2"), ("model.attention", "sdpa"),
    ("loss.logits", "fused"), ("loss.logits", "chunked"), ("quantization.double_quant", True), ("quantization.double_quant",
    False),
    ("model.dtype", "bfloat16"), ("checkpointing.use_reentrant", False), ("checkpointing.offload", True), ("eval.batch_size", 1),
    ("eval.enabled", False), ("adapter.r", 4), ("parallel.offload_params", "cpu"), ("parallel.offload_optimizer", "cpu"),
    ("parallel.strategy", "zero3"), ("quantization.method", "bnb_4bit"), ("quantization.method", "torchao_nf4"),
    ("optimizer.in_backward", True), ("parallel.reduce_bucket_size", 100_000_000), ("checkpointing.mode", "selective_core_attention"),
    ("checkpointing.mode", "selective_op"), ("parallel.tensor", 2), ("parallel.distributed_optimizer", True), ("parallel.gpus", 2),
    ("loss.kernel", "te_fused_ce"), ("optimizer.precision_aware", True),
)  # fmt: skip

EXTRA = {
    # to offload, axolotl needs checkpointing and FSDP; a bucket exists only where there is ZeRO
    ("axolotl", "parallel.offload_params"): {"fsdp_config": {"offload_params": False}, "fsdp_config.offload_params": False},
    ("axolotl", "parallel.offload_optimizer"): {"fsdp_config": {"offload_params": False}, "fsdp_config.offload_params": False},
    ("lightning_cli", "parallel.gpus"): {"trainer.devices": 1},
    ("lightning_cli", "parallel.offload_params"): {"trainer.strategy.class_path": "lightning.pytorch.strategies.FSDPStrategy"},
    ("lightning_cli", "parallel.offload_optimizer"): {"trainer.strategy.class_path": "lightning.pytorch.strategies.FSDPStrategy"},
    ("trl_yaml", "parallel.offload_params"): {"fsdp": "full_shard"},
    ("trl_yaml", "parallel.offload_optimizer"): {"fsdp": "full_shard"},
    ("ms_swift", "parallel.offload_params"): {"fsdp": "full_shard"},
    ("ms_swift", "parallel.offload_optimizer"): {"fsdp": "full_shard"},
    ("llama_factory", "parallel.offload_params"): {"fsdp": "full_shard"},
    ("llama_factory", "parallel.offload_optimizer"): {"fsdp": "full_shard"},
    ("deepspeed", "checkpointing.offload"): {"activation_checkpointing": {}},
    ("accelerate", "parallel.strategy"): {"distributed_type": "DEEPSPEED"},
    ("unsloth_studio", "optimizer.name"): {"model": None},  # only Studio's defaults of a model, which name none, have `optim`
    ("torchtune", "quantization.method"): {"model.quantize_base": False},
    ("axolotl", "checkpointing.use_reentrant"): {"gradient_checkpointing": True},
    ("trl_yaml", "eval.batch_size"): {"eval_strategy": "steps"},
    ("ms_swift", "eval.batch_size"): {"split_dataset_ratio": 0.1},
    ("llama_factory", "eval.batch_size"): {"eval_strategy": "steps"},
    ("axolotl", "eval.batch_size"): {"val_set_size": 0.1, "evals_per_epoch": 1},
    ("axolotl", "eval.enabled"): {"val_set_size": 0.1, "evals_per_epoch": 1},
}


def read(name: str, native: dict[str, Any]) -> dict[str, Fact]:
    return settle(by_name(name).facts({key: fixed(value) for key, value in native.items()}))


def written(native: dict[str, Any], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    changed = {**native, **dict(pairs)}
    return {key: value for key, value in changed.items() if value is not None}


def sayable() -> list[Any]:
    cases = []
    for name in NATIVE:
        for key, value in CHANGES:
            if by_name(name).write(key, value) is not None:
                cases.append(pytest.param(name, key, value, id=f"{name}-{key}-{value}"))
    return cases


@pytest.mark.parametrize(("name", "key", "value"), sayable())
def test_what_is_written_is_read_back(name: str, key: str, value: Any) -> None:
    native = {**NATIVE[name], **EXTRA.get((name, key), {})}
    pairs = by_name(name).write(key, value)
    facts = read(name, written(native, pairs))
    assert facts[key].values == (value,)


MUST = {
    "axolotl": {"checkpointing.enabled", "precision", "batch.micro_batch_size", "batch.gradient_accumulation_steps",
                "batch.sequence_length", "optimizer.name", "model.attention", "loss.logits", "quantization.double_quant",
                "model.dtype"},
    "llama_factory": {"checkpointing.enabled", "precision", "batch.micro_batch_size", "batch.gradient_accumulation_steps",
                      "batch.sequence_length", "optimizer.name", "model.attention", "loss.logits", "quantization.double_quant"},
    "trl_yaml": {"checkpointing.enabled", "precision", "batch.micro_batch_size", "batch.gradient_accumulation_steps",
                 "batch.sequence_length", "optimizer.name", "model.attention", "loss.logits", "quantization.double_quant",
                 "model.dtype"},
    "torchtune": {"checkpointing.enabled", "precision", "batch.micro_batch_size", "batch.gradient_accumulation_steps",
                  "batch.sequence_length", "optimizer.name", "loss.logits", "model.dtype", "checkpointing.offload"},
    "ms_swift": {"checkpointing.enabled", "precision", "batch.micro_batch_size", "batch.gradient_accumulation_steps",
                 "batch.sequence_length", "optimizer.name", "model.attention", "loss.logits", "quantization.double_quant",
                 "model.dtype"},
    "litgpt": {"batch.micro_batch_size", "batch.sequence_length", "precision", "optimizer.name", "quantization.double_quant"},
    "deepspeed": {"batch.micro_batch_size", "batch.gradient_accumulation_steps", "precision", "parallel.offload_optimizer"},
}  # fmt: skip


@pytest.mark.parametrize("name", MUST)
def test_the_changes_that_rules_propose_can_be_said(name: str) -> None:
    said = {key for key, value in CHANGES if by_name(name).write(key, value) is not None}
    assert MUST[name] <= said


@pytest.mark.parametrize("name", NATIVE)
def test_an_unknown_key_cannot_be_written(name: str) -> None:
    assert by_name(name).write("no.such_key", 1) is None
