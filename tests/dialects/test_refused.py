"""What a framework refuses or passes over is told in every dialect: values of another type, keys that nobody knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlint.dialects.accepted import BLOCKS
from memlint.extract import extract
from memlint.facts import TrainingRun
from memlint.project import Project

SAMPLES = Path(__file__).parents[1] / "fixes" / "samples"
DIALECTS = sorted({path.stem for path in SAMPLES.iterdir() if "-" not in path.stem} - {"lightning_cli"})
"""Lightning's batch size is an argument of somebody's class: its type is not known here."""

NUMBERS = {"accelerate": "num_processes: 8", "deepspeed": '"train_micro_batch_size_per_gpu": 8'}
"""What is a number in the samples that have no batch size of `8  # per GPU`."""


def run_of(folder: Path, sample: str, old: str, new: str) -> TrainingRun:
    path = next(path for path in SAMPLES.iterdir() if path.stem == sample)
    text = path.read_text()
    assert text.count(old) == 1
    file = folder / path.name
    file.write_text(text.replace(old, new))
    (run,) = extract(str(file), Project.around(str(file))).runs
    return run


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_word_instead_of_a_number(dialect: str, tmp_path: Path) -> None:
    old = NUMBERS.get(dialect, "8  # per GPU")
    run = run_of(
        tmp_path, dialect, old, old.replace("8", '"four"' if dialect in ("deepspeed", "sd_scripts", "torchtitan") else "four")
    )
    (problem,) = [problem for problem in run.problems if problem.name == "wrong-value"]
    assert "four" in problem.message
    text = Path(problem.span.path).read_text().splitlines()[problem.span.line - 1]
    assert "four" in text


SLIPS = {
    "axolotl": ("micro_batch_size", "micro_batchsize"), "llama_factory": ("cutoff_len", "cutof_len"),
    "llama_factory_v1": ("micro_batch_size", "micro_batch_sizes"), "litgpt": ("max_seq_length", "max_seq_lenght"),
    "lightning_cli": ("accumulate_grad_batches", "acumulate_grad_batches"),
    "ludwig": ("enable_gradient_checkpointing", "enable_gradient_checkpoint"),
    "open_instruct": ("gradient_checkpointing", "gradient_checkpoiting"), "torchtune": ("enable_activation_checkpointing",
    "enable_activation_checkpoint"),
    "unsloth_studio": ("gradient_checkpointing", "gradient_checkpoint"), "verl": ("micro_batch_size_per_gpu",
    "micro_batchsize_per_gpu"),
    "verl_ppo": ("gpu_memory_utilization", "gpu_memory_utilisation"), "ms_swift": ("lora_rank", "lora_ranks"),
    "accelerate": ("mixed_precision", "mixed_precison"), "trl_yaml": ("gradient_checkpointing", "gradient_checkpoiting"),
    "deepspeed": ("reduce_bucket_size", "reduce_bucketsize"), "megatron_yaml": ("--attention-backend", "--atention-backend"),
    "sd_scripts": ("gradient_accumulation_steps", "gradient_acumulation_steps"), "torchtitan": ("local_batch_size", "local_batchsize"),
}  # fmt: skip


@pytest.mark.parametrize("dialect", SLIPS)
def test_a_slip_of_the_pen(dialect: str, tmp_path: Path) -> None:
    right, wrong = SLIPS[dialect]
    mark = {"deepspeed": '"{}":', "sd_scripts": "{} =", "torchtitan": "{} ="}.get(dialect, "{}:")
    run = run_of(tmp_path, dialect, f"{mark.format(right)} ", f"{mark.format(wrong)} ")
    messages = [problem.message for problem in run.problems if problem.name == "unknown-key"]
    assert messages == [f"unknown key {wrong!r}: did you mean {right!r}?"]


def test_every_dialect_whose_keys_are_known_has_a_slip() -> None:
    assert set(SLIPS) == set(BLOCKS)


def test_the_samples_themselves_are_clean(tmp_path: Path) -> None:
    for path in SAMPLES.iterdir():
        run = extract(str(path), Project.around(str(path))).runs[0]
        assert [p.message for p in run.problems if p.name in ("unknown-key", "wrong-value")] == [], path.name


def test_a_slip_in_a_section_whose_name_means_nothing(tmp_path: Path) -> None:
    file = tmp_path / "lora.toml"
    file.write_text(
        '[model]\npretrained_model_name_or_path = "a/b"\n[network_dims]\nnetwork_module = "networks.lora"\nnetwork_dimm = 8\n'
        "train_batch_size = 2\n"
    )
    (run,) = extract(str(file), Project.around(str(file))).runs
    assert [p.message for p in run.problems if p.name == "unknown-key"] == [
        "unknown key 'network_dimm': did you mean 'network_dim'?"
    ]
