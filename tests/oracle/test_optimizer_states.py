"""Optimizer states against those that torch's own optimizers hold after a step."""

from __future__ import annotations

import pytest
import torch

from memlint.facts import TrainingRun, fixed
from memlint.memory.optimizer import state_bytes
from memlint.memory.setup import Setup, setup_of
from memlint.memory.tensor import Ledger, Parameter, Storage
from memlint.models import lookup
from memlint.source import Span

ROWS, COLUMNS = 96, 64

REAL = {
    "adamw_torch": torch.optim.AdamW, "adadelta": torch.optim.Adadelta, "rprop": torch.optim.Rprop, "asgd": torch.optim.ASGD,
    "adagrad": torch.optim.Adagrad, "rmsprop": torch.optim.RMSprop, "radam": torch.optim.RAdam, "nadam": torch.optim.NAdam,
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_states_are_those_that_torch_holds(name: str, dtype: torch.dtype) -> None:
    weight = torch.nn.Parameter(torch.ones(ROWS, COLUMNS, dtype=dtype))
    weight.grad = torch.ones_like(weight)
    optimizer = REAL[name]([weight])
    optimizer.step()
    held = [t.numel() * t.element_size() for t in optimizer.state[weight].values() if torch.is_tensor(t) and t.numel() > 1]
    assert sorted(state_bytes(_setup(name), _parameter(dtype.itemsize))) == sorted(held)


def _setup(name: str) -> Setup:
    facts = {"model.dtype": "bfloat16", "precision": "bf16-true", "optimizer.name": name, "batch.sequence_length": 8,
             "batch.micro_batch_size": 1}  # fmt: skip
    run = TrainingRun("x", Span("x", 1), {key: fixed(value) for key, value in facts.items()})
    found = lookup("openai-community/gpt2")
    assert found.architecture is not None
    return setup_of(run, found.architecture, None, [])


def _parameter(itemsize: int) -> Parameter:
    numel = ROWS * COLUMNS
    parameter = Parameter(Storage(Ledger(), numel * itemsize, "weights"), numel, itemsize, "weight", "linear", 0)
    parameter.shape = (ROWS, COLUMNS)
    return parameter
