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


EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
"""Configuration entries that count experts."""


def divided(architecture: Architecture, setup: Setup) -> Architecture:
    """The part of each matrix that one card of a tensor-parallel group holds, and the experts of one card of an expert-parallel group
    (torchtitan `expert_parallel_degree`); tokens are taken to be routed evenly."""
    sharding = setup.sharding
    if sharding.strategy == "megatron":
        return architecture
    config = dict(architecture.config)
    if sharding.expert > 1:
        config |= {name: max(1, int(config[name]) // sharding.expert) for name in EXPERTS if config.get(name)}
        architecture = architecture._replace(config=config)
    parts = sharding.tensor
    if parts == 1 or not architecture.heads:
        return architecture
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
    """The layers of the fullest card of one process under a `device_map`, embedding and head counting with it; the part of the vocabulary
    that a tensor-parallel rank has."""
    sharding = setup.sharding
    if sharding.tensor > 1 and setup.stack.framework == "torchtitan":
        # Embedding and head by rows of the vocabulary, and the loss over divided logits (`loss_parallel`).
        setup = setup._replace(vocabulary=-(-setup.vocabulary // sharding.tensor))
    cards = sharding.world
    mapped = setup.sharding.strategy == "device_map" and run.value("model.device_map") != "sequential"
    if cards == 1 or not mapped:
        return setup
    return setup._replace(layers=max(1, -(-setup.layers // cards)))


def is_divided(setup: Setup) -> bool:
    """Whether a card holds only a part of every matrix, or of the layers."""
    sharding = setup.sharding
    return max(sharding.tensor, sharding.pipeline, sharding.expert) > 1 or (
        sharding.strategy == "device_map" and sharding.world > 1
    )
