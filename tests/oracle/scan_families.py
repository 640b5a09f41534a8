"""Tiny configs of state-space decoders on mamba-ssm's kernel of the dual form (`scan_kernels.py`)."""

from __future__ import annotations

from .bases import LLAMA
from .family import VOCAB, Family

_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 24, "mamba_n_groups": 2, "mamba_chunk_size": 64}
_UNADAPTED = frozenset({"lora"})
"""peft adapts no output projection of these types, whose kernel takes its weight as it is, and so not `all-linear`."""


def _last_attends(layers: int) -> dict[str, list[int]]:
    return {"attn_layer_indices": [layers - 1]}


def _kinds(layers: int) -> dict[str, list[str]]:
    return {"layers_block_type": ["linear_attention", "mlp", "full_attention"][:layers]}


SCANS: tuple[Family, ...] = (
    Family(
        "mamba2",
        config={
            "hidden_size": 64,
            "num_heads": 8,
            "head_dim": 16,
            "state_size": 24,
            "n_groups": 2,
            "chunk_size": 64,
            "vocab_size": VOCAB,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        without=_UNADAPTED | {"sdpa", "mask"},
    ),
    Family(
        "nemotron_h",
        config=dict(LLAMA, head_dim=24, mamba_num_heads=8, mamba_head_dim=16, ssm_state_size=24, n_groups=2, chunk_size=64),
        depth=(),
        layer_list=_kinds,
        without=_UNADAPTED,
    ),
    Family("falcon_h1", config=dict(LLAMA, mamba_d_ssm=128, **_MAMBA), without=_UNADAPTED),
)
