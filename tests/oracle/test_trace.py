"""The record is what the installed libraries do, and the tracer agrees with PyTorch itself where PyTorch can be asked."""

from __future__ import annotations

import json
from importlib.metadata import version

import pytest
import torch
import transformers

from .engine import Engine
from .fake_cuda import fake_cuda
from .families import BY_NAME, FAMILIES
from .ledger import Ledger
from .peaks import CASES, PEAKS, trace
from .record import DEPTHS, REGIMES, fields, regimes_of
from .recorded import traces
from .regime import Regime
from .trace import step

OLD = traces()
SAMPLED = (0, -1, 5, 16, -2, 9, 23, -3)
"""Each family re-traces one of these regimes by turns, at the larger depth; the first families all of them, at both depths."""


def sample() -> list[tuple[str, str, tuple[int, ...]]]:
    """(family, regime, depths) to trace again: few per family, all kinds of regime over all families."""
    traced = []
    for number, (name, entry) in enumerate(OLD.items()):
        names = list(entry["regimes"])
        chosen = SAMPLED if number < 2 else SAMPLED[number % len(SAMPLED) :][:1]
        depths = DEPTHS if number < 2 else DEPTHS[-1:]
        traced += [(name, names[index % len(names)], depths) for index in chosen]
    return traced


def test_the_record_states_the_installed_versions() -> None:
    """A record of other versions would be compared with the wrong code."""
    for entry in OLD.values():
        assert entry["versions"] == {name: version(name).split("+")[0] for name in entry["versions"]}


def test_every_family_and_regime_is_recorded() -> None:
    """Nothing that the tracer can run is left out of the record."""
    for family in FAMILIES:
        recorded = OLD[family.name]
        assert {regime.name for regime in regimes_of(family)} <= set(recorded["regimes"])
        assert recorded["config"] == json.loads(json.dumps(dict(family.config)))


def test_names_of_regimes_read_back() -> None:
    """`parse` undoes `name`."""
    assert [Regime.parse(regime.name) for regime in REGIMES] == list(REGIMES)


@pytest.mark.parametrize(("name", "regime", "depths"), sample())
def test_the_record_is_reproduced(name: str, regime: str, depths: tuple[int, ...]) -> None:
    """Tracing again gives the recorded bytes."""
    again = [fields(step(BY_NAME[name], depth, Regime.parse(regime))) for depth in depths]
    assert again == OLD[name]["regimes"][regime][-len(depths) :]


def test_a_recorded_peak_is_reproduced() -> None:
    """One whole training step at real size."""
    case = next(case for case in CASES if case.model_type == "gpt2")
    recorded = json.loads(PEAKS.read_text())["cases"][CASES.index(case)]
    assert trace(case) == recorded["peaks"]


def test_saved_bytes_are_those_of_real_tensors() -> None:
    """On the CPU in float32 with eager attention, PyTorch packs for backward the bytes that the tracer sees alive."""
    config = transformers.LlamaConfig(**BY_NAME["llama"].at_depth(2), attn_implementation="eager")
    model = transformers.LlamaForCausalLM(config).train()
    ids = torch.ones(3, 160, dtype=torch.long)
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(input_ids=ids, labels=ids, use_cache=False)
    ours = step(BY_NAME["llama"], 2, Regime("float32", attention="eager")).held
    assert sum(storage.nbytes() for storage in kept.values()) == pytest.approx(ours, rel=0.002)


def test_gradients_are_those_of_the_real_engine() -> None:
    """The engine runs real tensors too: same gradients, bit by bit, with in-place accumulation and stolen first gradients."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**BY_NAME["llama"].at_depth(2), attn_implementation="eager")
    model = transformers.LlamaForCausalLM(config).train()
    ids = torch.randint(0, 1000, (2, 16))

    def gradients() -> list[torch.Tensor]:
        model.zero_grad(set_to_none=True)
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        return [p.grad.clone() for p in model.parameters()]

    expected = gradients()
    with Engine().active():
        ours = gradients()
    assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))


def test_the_ledger_sees_allocations_and_frees() -> None:
    """1000 float32 take 4096 bytes (eight blocks of 512); a view takes none; the last reference frees."""
    with fake_cuda():
        ledger = Ledger()
        with ledger:
            x = torch.zeros(1000)
            view = x[10:]
            assert ledger.live == 4096
            y = x + 1
            assert (ledger.live, ledger.peak) == (8192, 8192)
            del x, y
            assert ledger.live == 4096
            del view
            assert (ledger.live, ledger.peak) == (0, 8192)
