"""Objectives of sentence-transformers: means of token states in place of a head, two texts a sample."""

from __future__ import annotations

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.memory.program import record
from memlint.memory.setup import setup_of
from memlint.models.config import from_config
from memlint.source import Span
from tests.memory.test_saved_activations import facts_of, kept
from tests.oracle.family import at_depth
from tests.oracle.recorded import trace_of

REGIME = "float32.sdpa.nomask.full.off"
BERT = trace_of("bert")


def held(objective: str, layers: int) -> int:
    """Bytes between forward and backward."""
    architecture = from_config(at_depth({"model_type": "bert", **BERT["config"]}, BERT["depth"], layers))
    facts = facts_of(objective, REGIME) | {"framework.name": "sentence_transformers"}
    run = TrainingRun("test", Span("test", 1), {key: fixed(value) for key, value in facts.items()})
    setup = setup_of(run, architecture, None, [])
    return kept(record(setup, architecture, setup.layers).ledger).held


@pytest.mark.parametrize(("objective", "texts"), [("sentence_embedding", 2), ("cross_encoder", 1)])
def test_a_layer_keeps_what_it_keeps_for_each_text(objective: str, texts: int) -> None:
    """As traced for a classifier: an embedder's losses compare two texts (sentence-transformers 5.1
    `losses/MultipleNegativesRankingLoss.py`), a cross-encoder sees both in one."""
    two, three = BERT["regimes"][REGIME]
    layer = sum(three[:2]) - sum(two[:2])
    assert held(objective, 3) - held(objective, 2) == pytest.approx(texts * layer, rel=0.01)


def test_the_mean_keeps_the_mask_spread_over_the_states() -> None:
    """`attention_mask.unsqueeze(-1).expand(states.size()).to(states.dtype)`, which the product with the states keeps, is as large as the
    states themselves, which a classifier keeps instead: its row of first tokens is a view of them. Ids and position tables aside, all of
    it is there once for each text."""
    assert held("sentence_embedding", 3) == pytest.approx(2 * sum(BERT["regimes"][REGIME][1][:2]), rel=0.01)
