"""Write `diffusion.json`: what diffusers' networks keep for backward, by network and regime.

`python -m tests.oracle.diffusion [NAME ...]` traces one training step of tiny networks as diffusers' training scripts make it (noise is
predicted, squared error in float32; LoRA on the projections of attention) with diffusers 0.42 installed beside the oracle's requirements.
The record holds, for each regime, the bytes alive between forward and backward and the peaks of both; weights and the batch (latents,
text, target) are left out.
"""

from __future__ import annotations

import contextlib
import gc
import json
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from .engine import Engine
from .fake_cuda import fake_cuda
from .ledger import Ledger, rounded
from .regime import Regime
from .trace import to_fake_cuda

RECORD = Path(__file__).with_name("diffusion.json")
BATCH, TEXT = 3, 40
TARGETS = ["to_k", "to_q", "to_v", "to_out.0"]

_UNET = {
    "sample_size": 32,
    "block_out_channels": [32, 64],
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
    "cross_attention_dim": 48,
    "attention_head_dim": 4,
}
_SD3 = {
    "sample_size": 32,
    "patch_size": 2,
    "in_channels": 4,
    "num_layers": 3,
    "attention_head_dim": 24,
    "num_attention_heads": 4,
    "joint_attention_dim": 48,
    "caption_projection_dim": 96,
    "pooled_projection_dim": 40,
    "out_channels": 4,
    "pos_embed_max_size": 24,
}
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "unet_2d_condition": ("UNet2DConditionModel", _UNET),
    "unet_2d_condition-xl": (
        "UNet2DConditionModel",
        {
            **_UNET,
            "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
            "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"],
            "transformer_layers_per_block": [1, 3],
            "use_linear_projection": True,
            "addition_embed_type": "text_time",
            "addition_time_embed_dim": 8,
            "projection_class_embeddings_input_dim": 96,
        },
    ),
    "flux_transformer": (
        "FluxTransformer2DModel",
        {
            "patch_size": 1,
            "in_channels": 16,
            "num_layers": 2,
            "num_single_layers": 3,
            "attention_head_dim": 24,
            "num_attention_heads": 4,
            "joint_attention_dim": 48,
            "pooled_projection_dim": 40,
            "guidance_embeds": True,
            "axes_dims_rope": [8, 8, 8],
        },
    ),
    "sd3_transformer": ("SD3Transformer2DModel", _SD3),
    "sd3_transformer-3.5": (
        "SD3Transformer2DModel",
        {**_SD3, "qk_norm": "rms_norm", "dual_attention_layers": [0]},
    ),
}
"""Name -> (class, configuration)."""

LATENT_ROWS = 96
"""Of a transformer's sample."""

REGIMES = (
    *(Regime(weights, autocast) for weights, autocast in (("float32", False), ("bfloat16", False), ("float32", True))),
    *(Regime(weights, True, checkpointing="non_reentrant") for weights in ("float32", "bfloat16")),
    Regime("bfloat16", True, adapter="float32"),
    Regime("bfloat16", True, adapter="float32", checkpointing="non_reentrant"),
    Regime("bfloat16", False, adapter="bfloat16"),
    Regime("float32", True, adapter="float32"),
)


def inputs(name: str, config: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """The arguments of the forward call."""
    if name == "flux_transformer":
        return {
            "hidden_states": torch.zeros(BATCH, LATENT_ROWS, config["in_channels"], dtype=dtype),
            "encoder_hidden_states": torch.zeros(BATCH, TEXT, config["joint_attention_dim"], dtype=dtype),
            "pooled_projections": torch.zeros(BATCH, config["pooled_projection_dim"], dtype=dtype),
            "timestep": torch.zeros(BATCH, dtype=dtype),
            "guidance": torch.zeros(BATCH, dtype=torch.float32),
            "img_ids": torch.zeros(LATENT_ROWS, 3, dtype=dtype),
            "txt_ids": torch.zeros(TEXT, 3, dtype=dtype),
        }
    side = config["sample_size"]
    if name.startswith("sd3"):
        return {
            "hidden_states": torch.zeros(BATCH, config["in_channels"], side, side, dtype=dtype),
            "encoder_hidden_states": torch.zeros(BATCH, TEXT, config["joint_attention_dim"], dtype=dtype),
            "pooled_projections": torch.zeros(BATCH, config["pooled_projection_dim"], dtype=dtype),
            "timestep": torch.zeros(BATCH, dtype=dtype),
        }
    given: dict[str, Any] = {
        "sample": torch.zeros(BATCH, 4, side, side, dtype=dtype),
        "timestep": torch.zeros(BATCH, dtype=torch.long),
        "encoder_hidden_states": torch.zeros(BATCH, TEXT, config["cross_attention_dim"], dtype=dtype),
    }
    if config.get("addition_embed_type") == "text_time":
        pooled = config["projection_class_embeddings_input_dim"] - 6 * config["addition_time_embed_dim"]
        given["added_cond_kwargs"] = {
            "text_embeds": torch.zeros(BATCH, pooled, dtype=dtype),
            "time_ids": torch.zeros(BATCH, 6, dtype=dtype),
        }
    return given


def build(name: str, regime: Regime) -> Any:
    """The network in training mode on the fake device."""
    kind, config = NETWORKS[name]
    with torch.device("meta"):
        model = getattr(import_module("diffusers"), kind)(**config).to(getattr(torch, regime.weights))
        if regime.adapter != "none":
            import peft

            model.requires_grad_(False)
            model.add_adapter(peft.LoraConfig(r=8, lora_alpha=8, target_modules=TARGETS))
            for key, parameter in model.named_parameters():
                if ".lora_" in key:
                    parameter.data = parameter.data.to(getattr(torch, regime.adapter))
    to_fake_cuda(model)
    if regime.checkpointing != "off":
        model.enable_gradient_checkpointing(
            lambda module, *args: checkpoint(module.__call__, *args, use_reentrant=False, preserve_rng_state=False)
        )
    return model.train()


def step(name: str, regime: Regime) -> list[int]:
    """Bytes alive between forward and backward, and the two peaks."""
    model = build(name, regime)
    with fake_cuda():
        given = inputs(name, NETWORKS[name][1], getattr(torch, regime.weights))
        target = torch.zeros_like(given.get("sample", given.get("hidden_states")))
        ledger, engine = Ledger(), Engine()
        ledger.ignore(model.parameters(), weights=True)
        ledger.ignore([*model.buffers(), target, *(t for t in tree_leaves(given) if isinstance(t, torch.Tensor))])
        with ledger, engine.active():
            with torch.autocast("cuda", torch.bfloat16) if regime.autocast else contextlib.nullcontext():
                predicted = model(**given, return_dict=False)[0]
            if regime.autocast:  # accelerate converts what a model returns
                predicted = predicted.float()
            loss = F.mse_loss(predicted.float(), target.float(), reduction="mean")
            forward_peak = ledger.peak
            del predicted
            gc.collect()
            held = sum(rounded(block.nbytes) for block in ledger.blocks.values())
            ledger.mark()
            loss.backward()
            return [held, forward_peak, ledger.peak]


def main(names: list[str]) -> None:
    """Trace the named networks (all without a name) and write them into the record."""
    networks = json.loads(RECORD.read_text())["networks"] if RECORD.exists() else {}
    for name, (_, config) in NETWORKS.items():
        if names and name not in names:
            continue
        print(name, flush=True)
        networks[name] = {
            "config": config,
            "parameters": sum(p.numel() for p in build(name, REGIMES[0]).parameters()),
            "regimes": {regime.name: step(name, regime) for regime in REGIMES},
        }
    record = {
        "versions": {library: version(library).split("+")[0] for library in ("torch", "diffusers", "peft")},
        "shape": {"batch": BATCH, "text": TEXT, "latents": LATENT_ROWS},
        "networks": {name: networks[name] for name in NETWORKS if name in networks},
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
