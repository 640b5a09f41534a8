"""Tools that bring their own trainer: the configuration file, and what the command line lays over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memlint.extract import Project
from memlint.facts import TrainingRun
from memlint.launch import read_launch
from memlint.source import Kind, Source

FILES = {
    "axolotl.yml": "base_model: org/a\nmicro_batch_size: 2\nsequence_len: 2048\nadapter: lora\nlora_r: 16\n",
    "factory.yaml": "model_name_or_path: org/b\nstage: sft\ndo_train: true\nfinetuning_type: full\ncutoff_len: 1024\n"
    "per_device_train_batch_size: 2\nbf16: true\n",
    "tune.yaml": "model:\n  _component_: torchtune.models.llama3_1.lora_llama3_1_8b\n  lora_rank: 8\n  lora_alpha: 16\n"
    "  lora_attn_modules: [q_proj]\ntokenizer:\n  _component_: torchtune.models.llama3.llama3_tokenizer\n  max_seq_len: 2048\n"
    "checkpointer:\n  _component_: torchtune.training.FullModelHFCheckpointer\noptimizer:\n  _component_: torch.optim.AdamW\n"
    "batch_size: 2\ngradient_accumulation_steps: 8\ndtype: bf16\nenable_activation_checkpointing: True\ndevice: cuda\n",
    "lit.yaml": "checkpoint_dir: checkpoints/org/c\nprecision: bf16-true\ndevices: 1\ntrain:\n  micro_batch_size: 1\n"
    "  global_batch_size: 8\n  max_seq_length: 512\n",
    "accelerate.yaml": "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\nnum_machines: 1\nnum_processes: 4\n"
    "mixed_precision: bf16\n",
}

CASES: list[tuple[str, dict[str, Any]]] = [
    ("axolotl train axolotl.yml --micro-batch-size 4", {"batch.micro_batch_size": 4, "model.id": "org/a", "adapter.r": 16}),
    ("accelerate launch --num_processes 4 -m axolotl.cli.train axolotl.yml",
     {"batch.micro_batch_size": 2, "parallel.gpus": 4, "parallel.strategy": "ddp"}),
    ("accelerate launch --config_file accelerate.yaml -m axolotl.cli.train axolotl.yml",
     {"parallel.gpus": 4, "parallel.strategy": "zero3"}),
    ("CUDA_VISIBLE_DEVICES=0 axolotl train axolotl.yml", {"parallel.gpus": 1, "parallel.strategy": "none"}),
    ("llamafactory-cli train factory.yaml", {"batch.sequence_length": 1024, "adapter.method": "none"}),
    ("FORCE_TORCHRUN=1 NNODES=2 NPROC_PER_NODE=8 llamafactory-cli train factory.yaml cutoff_len=4096 bf16=true",
     {"batch.sequence_length": 4096, "parallel.gpus": 8, "parallel.nodes": 2, "parallel.strategy": "ddp"}),
    ("torchrun --nproc_per_node 2 src/train.py factory.yaml", {"model.id": "org/b", "parallel.gpus": 2}),
    ("llamafactory-cli train --stage sft --do_train --model_name_or_path org/d --finetuning_type lora --lora_rank 4",
     {"model.id": "org/d", "adapter.method": "lora", "adapter.r": 4}),
    ("tune run lora_finetune_single_device --config tune.yaml batch_size=4 optimizer=torch.optim.SGD",
     {"batch.micro_batch_size": 4, "adapter.method": "lora"}),
    ("tune run --nproc_per_node 4 lora_finetune_distributed --config tune.yaml",
     {"parallel.gpus": 4, "parallel.strategy": "fsdp2", "batch.micro_batch_size": 2}),
    ("litgpt finetune_lora checkpoints/org/c --config lit.yaml --train.micro_batch_size 4",
     {"batch.micro_batch_size": 4, "batch.sequence_length": 512, "model.id": "org/c"}),
    ("trl sft --model_name_or_path org/e --per_device_train_batch_size 2 --use_peft --lora_r 32",
     {"model.id": "org/e", "adapter.r": 32, "objective": "causal_lm", "framework.name": "trl"}),
    ("trl dpo --model_name_or_path org/e --accelerate_config zero2 --num_processes 2",
     {"objective": "dpo", "parallel.strategy": "zero2", "parallel.gpus": 2}),
    ("trl sft --model_name_or_path org/e --accelerate_config accelerate.yaml",
     {"parallel.strategy": "zero3", "parallel.gpus": 4}),
    ("NPROC_PER_NODE=4 swift sft --model org/f --tuner_type full --max_length 2048 --torch_dtype bfloat16 --deepspeed zero3",
     {"parallel.gpus": 4, "parallel.strategy": "zero3", "batch.sequence_length": 2048, "adapter.method": "none"}),
    ("swift rlhf --rlhf_type dpo --model org/f", {"objective": "dpo", "adapter.method": "lora"}),
    ("MAX_PIXELS=1003520 swift sft --model Qwen/Qwen2.5-VL-7B-Instruct", {"vision.max_pixels": 1003520}),
    ("export IMAGE_MAX_TOKEN_NUM=1024\nswift sft --model Qwen/Qwen3-VL-4B-Instruct", {"vision.max_pixels": 1024 * 32 * 32}),
    ("IMAGE_MAX_TOKEN_NUM=1024 swift sft --model Qwen/Qwen2.5-VL-7B-Instruct", {"vision.max_pixels": 1024 * 28 * 28}),
    ("python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=org/g trainer.n_gpus_per_node=8 "
     "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 +trainer.nnodes=2",
     {"model.id": "org/g", "objective": "grpo", "parallel.gpus": 8, "parallel.nodes": 2, "batch.micro_batch_size": 2}),
    ("deepspeed --num_gpus 8 --module openrlhf.cli.train_dpo --model.model_name_or_path org/h --train.micro_batch_size 1",
     {"model.id": "org/h", "objective": "dpo", "batch.micro_batch_size": 1, "parallel.gpus": 8}),
]  # fmt: skip


def runs(line: str, folder: Path) -> tuple[TrainingRun, ...]:
    (folder / ".git").mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    path = str(folder / "run.sh")
    found = read_launch(Source(path, Kind.SHELL, line + "\n"), Project.around(path))
    assert not found.errors
    return found.runs


@pytest.mark.parametrize(("line", "expected"), CASES)
def test_tool(line: str, expected: dict[str, Any], tmp_path: Path) -> None:
    (run,) = runs(line, tmp_path)
    assert {key: run.value(key) for key in expected} == expected


@pytest.mark.parametrize(
    "line",
    [
        "axolotl preprocess axolotl.yml",
        "llamafactory-cli export factory.yaml",
        "swift infer --model org/f",
        "trl vllm-serve --model org/e",
        "tune download org/a",
        "litgpt generate checkpoints/org/c",
        "python -m verl.trainer.main_generation model.path=x",
        "llamafactory-cli train missing.yaml",
    ],
)
def test_no_training(line: str, tmp_path: Path) -> None:
    assert runs(line, tmp_path) == ()


def test_a_heredoc_configuration_points_into_the_script(tmp_path: Path) -> None:
    shell = "BS=3\ncat > made.yml <<EOF\nbase_model: org/z\nmicro_batch_size: ${BS}\nsequence_len: 512\nEOF\n"
    shell += "axolotl train made.yml"
    (run,) = runs(shell, tmp_path)
    assert (run.value("model.id"), run.value("batch.micro_batch_size")) == ("org/z", 3)
    model, size = run.facts["model.id"].origin[0].span, run.facts["batch.micro_batch_size"].origin[0].span
    assert (model.path.endswith("run.sh"), model.line, model.column) == (True, 3, 13)
    assert (size.line, size.column) == (1, 4)
