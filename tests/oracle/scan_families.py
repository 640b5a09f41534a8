"""Tiny configs of state-space decoders on mamba-ssm's kernel of the dual form (`scan_kernels.py`)."""

from __future__ import annotations

from .bases import LLAMA, MOE, mostly_linear
from .family import VOCAB, Family

_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 24, "mamba_n_groups": 2, "mamba_chunk_size": 64}
_NEMOTRON = dict(LLAMA, head_dim=24, mamba_num_heads=8, mamba_head_dim=16, ssm_state_size=24, n_groups=2, chunk_size=64)
_UNADAPTED = frozenset({"all-linear", "mlp", "attention", "saved"})
"""peft refuses output projections of these types, whose kernel takes their weight as it is; their attention has no name of its own."""


def _last_attends(layers: int) -> dict[str, list[int]]:
    return {"attn_layer_indices": [layers - 1]}


def _kinds(layers: int) -> dict[str, list[str]]:
    return {"layers_block_type": ["full_attention", "linear_attention", "mlp"][:layers]}


def _with_experts(layers: int) -> dict[str, list[str]]:
    return {"layers_block_type": ["full_attention", "linear_attention", "moe"][:layers]}


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
        without=frozenset({"lora", "sdpa", "mask"}),
    ),
    Family(
        "nemotron_h",
        config=_NEMOTRON,
        depth=(),
        layer_list=_kinds,
        without=_UNADAPTED,
    ),
    Family(
        "nemotron_h",
        use="moe",
        config=dict(
            _NEMOTRON,
            n_routed_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=88,
            moe_shared_expert_intermediate_size=112,
        ),
        depth=(),
        layer_list=_with_experts,
        without=_UNADAPTED | MOE,
    ),
    Family(
        "granitemoehybrid",
        use="mamba",
        config=dict(LLAMA, shared_intermediate_size=176, num_local_experts=4, num_experts_per_tok=2, **_MAMBA),
        layer_list=mostly_linear,
        without=MOE,
    ),
    Family("bamba", config=dict(LLAMA, **_MAMBA), layer_list=_last_attends),
    Family("falcon_h1", config=dict(LLAMA, mamba_d_ssm=128, **_MAMBA), without=frozenset({"all-linear", "mlp"})),
)
