"""Models that stay on the card beside the trained one: which a script names, and what they add."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlint.extract import extract
from memlint.facts import TrainingRun
from memlint.memory.estimate import estimate
from memlint.models import lookup
from memlint.project import Project

GRPO = """
import torch
from transformers import AutoModelForSequenceClassification
from trl import GRPOConfig, GRPOTrainer

def short(completions, **kwargs):
    return [-len(c) for c in completions]

judge = AutoModelForSequenceClassification.from_pretrained("Qwen/Qwen2.5-7B-Instruct", num_labels=1, dtype=torch.bfloat16)
args = GRPOConfig("o", per_device_train_batch_size=4, num_generations=4, max_completion_length=128, bf16=True)
GRPOTrainer(model="Qwen/Qwen2.5-0.5B-Instruct", reward_funcs={rewards}, args=args, train_dataset=1).train()
"""

PPO = """
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
from trl.experimental.ppo import PPOConfig, PPOTrainer

def scored(kind):
    return kind.from_pretrained("EleutherAI/pythia-1b-deduped", dtype=torch.float32)

args = PPOConfig("o", per_device_train_batch_size=1, response_length=53, bf16=True)
PPOTrainer(args=args, processing_class=1, model=scored(AutoModelForCausalLM), ref_model=scored(AutoModelForCausalLM),
           reward_model=scored(AutoModelForSequenceClassification), train_dataset=1{value_model}).train()
"""


def run_of(folder: Path, script: str) -> TrainingRun:
    (folder / "train.py").write_text(script, encoding="utf-8")
    (run,) = extract(str(folder / "train.py"), Project(root=folder)).runs
    return run


def allocated(run: TrainingRun) -> int:
    architecture = lookup(run.value("model.id")).architecture
    assert architecture is not None
    return estimate(run.with_values({"batch.sequence_length": 256}, "the test's"), architecture).allocated.expected


@pytest.mark.parametrize(
    ("rewards", "held"),
    [
        ("[judge, short]", {"Qwen/Qwen2.5-7B-Instruct": "bfloat16"}),
        ('["Skywork/Skywork-Reward-V2-Qwen3-8B", short]', {"Skywork/Skywork-Reward-V2-Qwen3-8B": None}),
        ("short", None),
    ],
)
def test_reward_models_of_a_script(tmp_path: Path, rewards: str, held: dict[str, str | None] | None) -> None:
    assert run_of(tmp_path, GRPO.format(rewards=rewards)).value("model.companions") == held


def test_a_reward_model_adds_its_weights(tmp_path: Path) -> None:
    """Qwen2.5-7B counts 7,615,616,512 parameters (its safetensors index: 15,231,233,024 bytes)."""
    with_judge, without = (allocated(run_of(tmp_path, GRPO.format(rewards=rewards))) for rewards in ("[judge]", "short"))
    assert with_judge - without == pytest.approx(15_231_233_024, abs=4 << 20)


def test_a_value_model_is_trained_in_full(tmp_path: Path) -> None:
    """Pythia-1B counts 1,011,781,632 parameters (EleutherAI/pythia README): float32 weights, gradients and two AdamW states."""
    with_value, without = (
        allocated(run_of(tmp_path, PPO.format(value_model=text)))
        for text in (", value_model=scored(AutoModelForSequenceClassification)", "")
    )
    assert with_value - without == pytest.approx(1_011_781_632 * 16, abs=4 << 20)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.sh", "trl grpo --model_name_or_path Qwen/Qwen2.5-0.5B --reward_model_name_or_path Qwen/Qwen2.5-7B --num_generations 4\n"),
        ("ppo.yaml", "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: ppo\nfinetuning_type: full\nreward_model: Qwen/Qwen2.5-7B\n"
                     "reward_model_type: full\ndo_train: true\n"),
        ("swift.sh", "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-0.5B --reward_model Qwen/Qwen2.5-7B --dataset x\n"),
    ],
)  # fmt: skip
def test_reward_models_of_configurations(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    (run,) = extract(str(tmp_path / name), Project(root=tmp_path)).runs
    assert run.value("model.companions") == {"Qwen/Qwen2.5-7B": None}
