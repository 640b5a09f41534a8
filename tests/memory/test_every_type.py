"""Every model type that has a page: an estimate of a real model at full depth, with the parameters that its class has."""

from __future__ import annotations

import pytest

from memlint.facts import TrainingRun, fixed
from memlint.memory.estimate import estimate
from memlint.memory.families import PAGES
from memlint.memory.result import CannotEstimate
from memlint.models import Architecture, catalogue
from memlint.source import Span

HEADED = {"camembert", "xlm-roberta", "modernbert"}
"""Types whose small models in the catalogue are embedders: their bare class is counted there, without a head."""


WITH_DECODER = {"videomae"}
"""Types whose only model in the catalogue is counted with the decoder of its pretraining; pages are of the classifier, whose count the
record of real models holds."""


def smallest() -> list[Architecture]:
    """The smallest model of the catalogue for each type that has a page."""
    found: dict[str, Architecture] = {}
    for name in catalogue.ids():
        row = catalogue.find(name)
        assert row is not None
        model = catalogue.architecture(row.row)
        known = found.get(model.model_type)
        if model.model_type in HEADED and row.row["class"].endswith("Model"):
            continue
        if model.model_type in WITH_DECODER:
            continue
        if model.model_type in PAGES and model.params and (known is None or model.params < (known.params or 0)):
            found[model.model_type] = model
    return list(found.values())


@pytest.mark.parametrize("model", smallest(), ids=lambda model: model.model_type)
@pytest.mark.parametrize("adapter", ["none", "lora"])
def test_every_type_has_the_parameters_of_its_class(model: Architecture, adapter: str) -> None:
    """The catalogue's counts come from instantiating the class on the meta device (`tools/measure_models.py`); LoRA adds to them."""
    facts = {
        "model.id": model.name, "model.dtype": "bfloat16", "precision": "bf16-true", "batch.micro_batch_size": 2,
        "batch.sequence_length": 64, "optimizer.name": "adamw_torch", "loss.logits": "full", "adapter.method": adapter,
        "adapter.target_modules": "all-linear",
    }  # fmt: skip
    run = TrainingRun("x", Span("x", 1), {key: fixed(value) for key, value in facts.items()})
    found = estimate(run, model)
    added = found.trainable_parameters if adapter == "lora" else 0
    assert found.parameters - added == pytest.approx(model.params, rel=0.01)
    assert all(nbytes >= 0 for instant in found.timeline for nbytes in instant.components.values())


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("google/gemma-4-E4B", {"framework.name": "torchtitan", "parallel.pipeline": 2, "parallel.gpus": 2}),
        ("microsoft/resnet-50", {"framework.name": "litgpt"}),
    ],
)
def test_what_cannot_be_run_is_said(name: str, facts: dict[str, object]) -> None:
    """Shared keys and values do not cross a pipeline's stages; litgpt trains decoders."""
    row = catalogue.find(name)
    assert row is not None
    given = {
        "precision": "bf16-mixed",
        "batch.micro_batch_size": 1,
        "batch.sequence_length": 64,
        "optimizer.name": "adamw_torch",
    } | facts
    run = TrainingRun("x", Span("x", 1), {key: fixed(value) for key, value in given.items()})
    with pytest.raises(CannotEstimate, match=r"keys and values|litgpt"):
        estimate(run, catalogue.architecture(row.row))
