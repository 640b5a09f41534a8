"""Write `peaks.json`: the peak of each phase of whole training steps at real model sizes, by the real classes and optimizers.

`python -m tests.oracle.peaks` traces every entry of CASES: two steps of forward, backward and optimizer step on fake tensors,
figures of the second (optimizer states exist). Bytes are allocator blocks of all live tensors, weights included; cuBLAS
workspaces and other memory that kernels take for themselves are not (flash attention's backward excepted).
"""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from .engine import Engine
from .fake_cuda import fake_cuda
from .family import Family
from .inputs import inputs
from .ledger import Ledger, rounded
from .regime import Regime
from .trace import build, plain_positions

PEAKS = Path(__file__).with_name("peaks.json")
PHASES = ("forward", "backward", "optimizer_step")

_LLAMA_1B = {  # the sizes of Llama-3.2-1B
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128256,
    "tie_word_embeddings": True,
}
_QWEN_HALF = {  # the sizes of Qwen2.5-0.5B
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
_SIZES = {
    "llama": (Family("llama", config=_LLAMA_1B), 16),
    "qwen2": (Family("qwen2", config=_QWEN_HALF), 24),
    "gpt2": (Family("gpt2", depth=("n_layer",)), 12),
    "bert": (Family("bert", "sequence_classification"), 12),
}


@dataclass(frozen=True)
class Case:
    """One training setup. `optimizer` is adamw_torch (foreach), adamw_torch_fused or sgd."""

    model_type: str
    regime: Regime
    batch: int
    sequence: int
    optimizer: str = "adamw_torch"
    keeps_outputs: bool = False
    """The loop holds the model's output during backward."""

    @property
    def name(self) -> str:
        """A unique name."""
        kept = ".keeps" if self.keeps_outputs else ""
        return f"{self.model_type}.b{self.batch}.s{self.sequence}.{self.regime.name}.{self.optimizer}{kept}"


_LORA = {"adapter": "float32", "dropout": 0.05}
CASES = (
    Case("llama", Regime(), 2, 1024),
    Case("llama", Regime(), 2, 1024, "adamw_torch_fused"),
    Case("llama", Regime(), 4, 2048, "adamw_torch_fused"),
    Case("llama", Regime(checkpointing="non_reentrant"), 4, 2048),
    Case("llama", Regime(checkpointing="non_reentrant"), 8, 2048, "adamw_torch_fused"),
    Case("llama", Regime("float32", True), 2, 1024, "adamw_torch_fused"),
    Case("llama", Regime("bfloat16", True, **_LORA), 2, 1024),
    Case("llama", Regime("bfloat16", True, checkpointing="non_reentrant", **_LORA), 4, 2048),
    Case("llama", Regime("bfloat16", True, checkpointing="reentrant", **_LORA), 4, 2048),
    Case("llama", Regime("bfloat16", True, mask=True, **_LORA), 4, 768, keeps_outputs=True),
    Case("qwen2", Regime("float32", True), 4, 512),
    Case("qwen2", Regime("float32", True, checkpointing="non_reentrant"), 8, 1024, "adamw_torch_fused"),
    Case("qwen2", Regime("bfloat16", True, attention="eager", **_LORA), 2, 1024),
    Case("gpt2", Regime("float32", True), 8, 512),
    Case("gpt2", Regime("float32", True), 8, 512, keeps_outputs=True),
    Case("gpt2", Regime("float32"), 4, 1024, "adamw_torch_fused"),
    Case("bert", Regime("float32", True), 16, 256),
    Case("bert", Regime("float32", attention="eager"), 8, 512, "sgd"),
)


def _optimizer(name: str, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=1e-3, foreach=True)
    return torch.optim.AdamW(parameters, lr=1e-3, foreach=name == "adamw_torch", fused=name == "adamw_torch_fused")


def trace(case: Case) -> dict[str, int]:
    """The peak of each phase of the second step, and `weights`, the bytes of all parameters."""
    family, layers = _SIZES[case.model_type]
    model = build(family, layers, case.regime)
    ledger, engine = Ledger(), Engine()
    with fake_cuda(), plain_positions():
        given = inputs(family, case.regime, case.batch, case.sequence)
        ledger.ignore(model.parameters(), weights=True)
        ledger.ignore([*model.buffers(), *(t for t in tree_leaves(given) if isinstance(t, torch.Tensor))])
        weights = sum(rounded(p.untyped_storage().nbytes()) for p in model.parameters())
        optimizer = _optimizer(case.optimizer, [p for p in model.parameters() if p.requires_grad])
        peaks: dict[str, int] = {}
        output: Any = None
        with ledger, engine.active():
            for _ in range(2):
                ledger.mark()
                with torch.autocast("cuda", torch.bfloat16) if case.regime.autocast else contextlib.nullcontext():
                    output = model(**given)
                loss = output.loss
                if not case.keeps_outputs:
                    output = None
                peaks["forward"] = weights + ledger.peak
                ledger.mark()
                loss.backward()
                peaks["backward"] = weights + ledger.peak
                del loss
                ledger.mark()
                optimizer.step()
                peaks["optimizer_step"] = weights + ledger.peak
                optimizer.zero_grad(set_to_none=True)
    return {"weights": weights, **peaks}


def main() -> None:
    """Trace every case and write."""
    record: dict[str, Any] = {
        "versions": {name: version(name).split("+")[0] for name in ("torch", "transformers", "peft")},
        "models": {
            name: {"head": family.head, "config": dict(family.config), "depth": list(family.depth), "layers": layers}
            for name, (family, layers) in _SIZES.items()
        },
        "cases": [],
    }
    for case in CASES:
        print(case.name, flush=True)
        record["cases"].append(
            {
                "model_type": case.model_type,
                "regime": case.regime.name,
                "batch": case.batch,
                "sequence": case.sequence,
                "optimizer": case.optimizer,
                "keeps_outputs": case.keeps_outputs,
                "peaks": trace(case),
            }
        )
    cases = ",\n  ".join(json.dumps(case) for case in record.pop("cases"))
    head = json.dumps(record, indent=1)[:-2]
    PEAKS.write_text(f'{head},\n "cases": [\n  {cases}\n ]\n}}\n')


if __name__ == "__main__":
    sys.exit(main())
