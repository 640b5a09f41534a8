"""Which part of a model lies on a card when its layers or its matrices are divided.

Tensor parallelism as PyTorch's plans do it (torchtitan `models/llama3/parallelize.py`, torchtune 0.6 `models/llama3/_parallelism.py`,
transformers 5.24 `integrations/tensor_parallel.py` and `base_model_tp_plan`): query, key, value, gate and up by columns, output and down
by rows, so that a card has its share of the heads and of the inner width, and the residual stream whole. Megatron's page divides by
itself. `device_map` (accelerate 1.15 `utils/modeling.py`, `infer_auto_device_map`) deals whole blocks: `auto` and `balanced` evenly,
`sequential` filling card after card.
"""

from __future__ import annotations

from memlint.facts import TrainingRun
from memlint.memory.setup import Setup
from memlint.models.architecture import Architecture

INNER = ("intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner", "moe_intermediate_size", "shared_expert_intermediate_size")
"""Configuration entries that are widths of a feed-forward part."""


def divided(architecture: Architecture, setup: Setup) -> Architecture:
    """The part of each matrix that one card of a tensor-parallel group holds."""
    parts = setup.sharding.tensor
    if parts == 1 or setup.sharding.strategy == "megatron" or not architecture.heads:
        return architecture
    config = dict(architecture.config)
    for name in INNER:
        width = config.get(name)
        if isinstance(width, int):
            config[name] = -(-width // parts)
    kv_heads = architecture.kv_heads or architecture.heads
    return architecture._replace(
        config=config,
        head_dim=architecture.head_dim or (architecture.hidden_size or 0) // architecture.heads,
        heads=-(-architecture.heads // parts),
        kv_heads=-(-kv_heads // parts),
        intermediate_size=-(-architecture.intermediate_size // parts) if architecture.intermediate_size else None,
    )


def dealt(run: TrainingRun, setup: Setup) -> Setup:
    """The layers of the fullest card of one process under a `device_map`; embedding and head count with it."""
    cards = setup.sharding.world
    mapped = setup.sharding.strategy == "device_map" and run.value("model.device_map") != "sequential"
    if cards == 1 or not mapped:
        return setup
    return setup._replace(layers=max(1, -(-setup.layers // cards)))


def is_divided(setup: Setup) -> bool:
    """Whether a card holds only a part of every matrix, or of the layers."""
    sharding = setup.sharding
    return sharding.tensor > 1 or sharding.pipeline > 1 or (sharding.strategy == "device_map" and sharding.world > 1)
