"""Runs of apex's time, and what is on the card beside torch's allocator."""

from __future__ import annotations

from memlint.assess import FITS, TIGHT, judge
from memlint.facts import TrainingRun, fixed
from memlint.gpus import find
from memlint.memory.estimate import estimate
from memlint.memory.result import Estimate
from memlint.models import lookup
from memlint.source import Span

GIB = 2**30


def bert(**facts: object) -> Estimate:
    """BERT-large on 384 tokens under apex's amp at level O2, in the words of DeepSpeed's SQuAD example."""
    run = {
        "model.id": "google-bert/bert-large-uncased", "model.dtype": "float16", "precision": "fp16-true", "model.attention": "eager",
        "batch.micro_batch_size": 32, "batch.sequence_length": 384, "optimizer.name": "adamw_apex_fused",
        "optimizer.master_weights": True, "checkpointing.enabled": False, "objective": "question_answering", "parallel.gpus": 8,
        "parallel.strategy": "ddp", **facts,
    }  # fmt: skip
    found = lookup(str(run["model.id"]))
    assert found.architecture is not None
    known = TrainingRun("x", Span("x", 1), {key: fixed(value) for key, value in run.items()})
    return estimate(known, found.architecture, find("V100 32GB"))


def test_a_gelu_that_is_written_out_keeps_three_tensors() -> None:
    # `x * 0.5 * (1 + erf(x / 1.41421))`: both factors of the product and what erf took, instead of x: two more of 4 x 1024 of two bytes
    # in each of 24 layers.
    written, one = (bert(**{"framework.versions": {"torch": torch}}) for torch in ("1.3", "1.5"))
    more = 24 * 32 * 384 * 2 * 4 * 1024 * 2
    assert abs(written.allocated.expected - one.allocated.expected - more) < 0.02 * more


def test_nothing_states_which_of_them_a_run_under_apex_has() -> None:
    written, one = (bert(**{"framework.versions": {"torch": torch}}) for torch in ("1.3", "1.5"))
    both = bert()
    assert (both.allocated.low, both.allocated.high) == (one.allocated.low, written.allocated.high)
    assert any("apex" in sentence for sentence in both.assumptions)


def test_the_verdict_counts_what_an_old_cuda_loads_and_communicators_hold() -> None:
    """32 samples died on a card of 32 GB (DeepSpeed's tutorial `bert-finetuning.md`), 12 ran."""
    card = find("V100 32GB")
    assert card is not None
    assert judge(bert(), card) == TIGHT
    assert judge(bert(**{"batch.micro_batch_size": 12}), card) == FITS
    assert bert().beside.expected > GIB - card.context_bytes > bert(**{"framework.versions": {"torch": "2.6"}}).beside.expected


def test_master_weights_have_gradients_of_their_own_while_they_are_updated() -> None:
    """Of each of BERT-large's 334,094,338 trained parameters: 2 bytes of weight, 4 of its float32 copy, 8 of Adam's states, 2 of gradient
    and 4 of that of the copy."""
    few = bert(
        **{"batch.micro_batch_size": 1, "parallel.gpus": 1, "parallel.strategy": "none", "framework.versions": {"torch": "1.5"}}
    )
    step = next(instant for instant in few.timeline if instant.phase == "optimizer_step")
    assert abs(step.peak_bytes / few.trainable_parameters - 20) < 0.2
