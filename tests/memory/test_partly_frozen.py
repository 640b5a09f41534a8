"""A model of which a part is frozen: the estimate lies between its head alone and all of it."""

from __future__ import annotations

from memlint.facts import Fact, TrainingRun, fixed, unknown
from memlint.memory.estimate import estimate
from memlint.models import lookup
from memlint.source import Span

BERT = 109_482_240
"""Parameters of bert-base-uncased with its pooler (`BertModel(BertConfig())`), without a head."""


def run(**more: Fact) -> TrainingRun:
    facts = {
        "model.id": fixed("bert-base-uncased"), "model.dtype": fixed("float32"), "precision": fixed("fp32"),
        "batch.micro_batch_size": fixed(4), "batch.sequence_length": fixed(128), "adapter.method": fixed("none"),
        "optimizer.name": fixed("adamw_torch_fused"), "objective": fixed("sequence_classification"),
        "framework.name": fixed("transformers"),
    }  # fmt: skip
    return TrainingRun("train.py", Span("train.py", 1), {**facts, **more})


def bounds(training: TrainingRun) -> tuple[int, int]:
    architecture = lookup("bert-base-uncased").architecture
    assert architecture is not None
    allocated = estimate(training, architecture).allocated
    return allocated.low, allocated.high


def test_full_training_holds_weights_gradients_and_two_moments() -> None:
    assert bounds(run())[0] > 3 * 4 * BERT


def test_which_parameters_are_trained_is_not_known() -> None:
    low, high = bounds(run(**{"trainable.modules": unknown("depends on their names")}))
    assert 4 * BERT * 0.95 < low < 1.2 * 4 * BERT  # float32 weights and little else: no gradients, no states
    assert high > 4 * 4 * BERT  # weights, gradients, two moments


def test_a_listed_head_is_expected_to_be_small() -> None:
    architecture = lookup("bert-base-uncased").architecture
    assert architecture is not None
    found = estimate(run(**{"trainable.modules": fixed(["classifier"])}), architecture)
    assert found.trainable_parameters == 768 * 2 + 2
    assert found.allocated.expected < 1.2 * 4 * BERT
    assert found.allocated.high > 4 * 4 * BERT


def test_last_layers_of_freeze_tuning_are_bounded_too() -> None:
    low, high = bounds(run(**{"trainable.layers": fixed(2)}))
    assert low < 1.2 * 4 * BERT
    assert high > 4 * 4 * BERT
