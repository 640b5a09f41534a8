"""Slips of the pen in the flags of launches, for the frameworks whose flags are all known."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlint.extract import Project
from memlint.launch import read_launch
from memlint.source import Kind, Source

GPT = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024"
SD = "accelerate launch sdxl_train_network.py --pretrained_model_name_or_path a/b --dataset_config d.toml"
TITAN = "torchrun --nproc_per_node 8 -m torchtitan.train --module llama3 --config llama3_8b"
SWIFT = "megatron sft --model Qwen/Qwen2.5-7B --dataset a --max_length 2048"


def messages(folder: Path, line: str) -> list[tuple[int, str]]:
    """(line, message) of what is said about the flags."""
    path = folder / "train.sh"
    path.write_text(line + "\n")
    (run,) = read_launch(Source(str(path), Kind.SHELL, line + "\n"), Project.around(str(path))).runs
    return [(problem.span.line, problem.message) for problem in run.problems if problem.name == "unknown-key"]


@pytest.mark.parametrize(
    ("launch", "wrong", "right"),
    [
        (GPT, "--micro-batchsize", "--micro-batch-size"),
        (GPT, "--recompute-granularty", "--recompute-granularity"),
        (GPT, "--use_distributed_optimiser", "--use_distributed_optimizer"),
        (SD, "--gradient_checkpoiting", "--gradient_checkpointing"),
        (SD, "--train_batchsize", "--train_batch_size"),
        (TITAN, "--training.local_batchsize", "--training.local_batch_size"),
        (TITAN, "--parallelism.tensor_parallel_degre", "--parallelism.tensor_parallel_degree"),
        (SWIFT, "--micro_batchsize", "--micro_batch_size"),
        (SWIFT, "--recompute_granularty", "--recompute_granularity"),
    ],
)
@pytest.mark.parametrize("form", ["{} 1", "{}=1"])
def test_a_slip_is_told_where_it_stands(tmp_path: Path, launch: str, wrong: str, right: str, form: str) -> None:
    line = f"{launch} \\\n  {form.format(wrong)}"
    assert messages(tmp_path, line) == [(2, f"unknown flag {wrong!r}: did you mean {right!r}?")]
    assert messages(tmp_path, line.replace(wrong, right)) == []


@pytest.mark.parametrize(
    "line",
    [
        # the underscore form, negated switches, a flag of 2023, one of a fork (Megatron-DeepSpeed), one of somebody's own
        f"{GPT} --micro_batch_size 1",
        f"{GPT} --no-gradient-accumulation-fusion --no-bias-swiglu-fusion --disable-bias-linear --no-persist-layer-norm",
        f"{GPT} --distribute-checkpointed-activations --checkpoint-activations --checkpoint-num-layers 1",
        f"{GPT} --zero-stage 1 --use-flash-attn-v2 --deepspeed_config ds.json --deepspeed",
        f"{GPT} --my-own-switch --micro-batch-size 1 --micro-batch-sizes 2",
        # values that look like settings are the optimizer's and the network's own arguments
        f"{SD} --optimizer_args scale_parameter=False relative_step=False max_train_step=3 --network_args a=1 train_batchsize=2",
        # `checkpoint` is a class of its own in the releases of 2026, its settings are not all known
        f"{TITAN} --checkpoint.enabled --training.seq_len 8192",
    ],
)
def test_what_some_release_has_or_what_is_strange_is_left_alone(tmp_path: Path, line: str) -> None:
    assert messages(tmp_path, line) == []
