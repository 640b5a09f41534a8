"""What is not modelled exactly, by name: each effect widens the interval and says so. Nothing else widens it.

Widths are relative to the quantity they act on. Their sources are measurements of strangers on stacks of that kind, as collected
in the research notes of this project (`docs/accuracy.md` cites them), never a residual of the benchmark.
"""

from __future__ import annotations

from memlint.facts import TrainingRun
from memlint.memory.build import BESIDE
from memlint.memory.setup import WHOLE, Setup
from memlint.memory.tuners import HOMES
from memlint.models.architecture import Architecture
from memlint.typed import NamedTuple


class Effect(NamedTuple):
    """`allocated` and `reserved` are (below, above) as shares of the expected value."""

    sentence: str
    allocated: tuple[float, float]
    reserved: tuple[float, float]


SCANS = {"mamba", "falcon_mamba", "mamba2", "falcon_h1", "jamba", "nemotron_h", "granitemoehybrid", "bamba"}
"""Model types whose mixers run on mamba-ssm's kernels (`memlint.memory.families.state_space`); Granite 4 comes without them as well."""


WITHOUT_TOKENS = {"image_classification", "video_classification", "semantic_segmentation"}
"""Objectives whose samples have a size, but no length."""


UNFOLLOWED = {
    "adaption_prompt": "the attention to the adaption prompt, which projects the queries a second time, is not modelled",
    "prefix_tuning": "keys and values of the prefix are not modelled",
    "cartridge": "keys and values of the prefix are not modelled",
}
"""Methods of which the parameters are modelled, but not all that the forward pass makes."""


def effects(run: TrainingRun, setup: Setup, architecture: Architecture) -> list[Effect]:
    """The effects that apply to this run."""
    found = [
        Effect(
            "kernel temporaries and allocation order are modelled to about 1.5 %; the reserve depends on the order to about 5 %",
            (0.015, 0.015),
            (0.05, 0.05),
        )
    ]
    if setup.adapter not in ("", *HOMES, *BESIDE):
        found.append(Effect(f"{setup.adapter} adapters are taken to cost what low-rank ones do", (0.15, 0.2), (0.15, 0.2)))
    if setup.adapter in UNFOLLOWED:
        found.append(Effect(UNFOLLOWED[setup.adapter], (0.02, 0.15), (0.02, 0.15)))
    if run.value("model.dtype") is None and setup.stack.loads_checkpoint_dtype:
        found.append(
            Effect("weights are held in the checkpoint's dtype, which `from_pretrained` takes over", (0.0, 0.0), (0.0, 0.0))
        )
    if not setup.adapter and ("trainable.modules" in run.facts or "trainable.layers" in run.facts):
        found.append(Effect("a part of the model is frozen; the bounds are a trained head and all of it", (0.0, 0.0), (0.0, 0.0)))
    lengthless = run.value("batch.sequence_length") is None and setup.objective not in WITHOUT_TOKENS
    if run.value("batch.sequence_length_is_cap") or lengthless:
        found.append(Effect("sequence lengths are known only by their cap; real ones may be shorter", (0.25, 0.0), (0.25, 0.0)))
    if setup.compiled and (setup.adapter or setup.quantization):
        found.append(Effect("compiled adapters and packed weights have not been traced", (0.08, 0.08), (0.1, 0.1)))
    elif setup.compiled:
        # What is kept is exact (tests/memory/test_compiled.py); peaks of graphs are within 2 %, of a checkpointed whole model within more.
        found.append(
            Effect(
                "torch.compile: the order of inductor's kernels, the buffers that they reuse and breaks of the graph are approximated",
                (0.03, 0.03),
                (0.04, 0.04),
            )
        )
    if architecture.model_type in SCANS and "mamba" in str(architecture.config.get("layer_types", "mamba")):
        found.append(
            Effect(
                "mamba-ssm's and causal-conv1d's kernels are taken to be installed (plain PyTorch keeps many times as much); "
                "what they keep is read from their source, not measured",
                (0.05, 0.1),
                (0.05, 0.1),
            )
        )
    if run.value("model.vision_config") or (setup.sharding.strategy == "megatron" and "vision_config" in architecture.config):
        found.append(Effect("the vision tower's activations are not modelled", (0.0, 0.15), (0.0, 0.15)))
    if architecture.model_type in WHOLE:
        found.append(
            Effect(
                "autoencoder and text encoders beside the U-Net are not modelled: 0.4 GB of 16-bit weights for Stable Diffusion 1.5, "
                "1.8 GB for XL, where latents and conditions are not computed beforehand",
                (0.0, 0.3),
                (0.0, 0.3),
            )
        )
    if run.value("compile.executor"):
        # lightning-thunder 0.2.6 traces a bfloat16 Llama block with over forty tensors of the residual stream's size for backward, most of
        # them float32, where fused kernels keep 17; what its executors' fusions recompute of these is their own choice.
        found.append(
            Effect("a compiler that keeps float32 intermediates and recomputes on its own terms", (0.25, 0.3), (0.25, 0.3))
        )
    if setup.sharding.reshards_root:
        found.append(
            Effect(
                "torchtitan on torch's nightlies of June and July 2025: figures published for it are a sixth lower than its code explains",
                (0.2, 0.0),
                (0.2, 0.0),
            )
        )
    if setup.stack.old:
        found.append(
            Effect(
                "a stack of 2022 to mid-2024, whose kernels kept more per token and per logit",
                (0.03, 0.05),
                (0.05, 0.1),
            )
        )
    if str(run.value("parallel.strategy", "none")) in ("fsdp1", "fsdp2", "zero1", "zero2", "zero3", "megatron"):
        found.append(Effect("communication buffers and overlap of a sharded job are approximated", (0.04, 0.05), (0.07, 0.2)))
    if setup.attention == "sdpa" and not setup.padding_mask and setup.stack.pads and setup.batch > 1:
        found.append(Effect("the attention kernel depends on the mask of each batch", (0.02, 0.02), (0.02, 0.02)))
    return found
