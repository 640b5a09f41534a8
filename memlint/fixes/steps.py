"""The steps a plan is made of: what people do when a run does not fit, and when each of them is sound.

Costs order them by how much they intrude: first what leaves the mathematics alone, then what leaves the effective batch
alone, last what changes what is trained. Of two steps of one `group` only one is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from memlint.assess import Assessment
from memlint.facts import TrainingRun
from memlint.gpus import Gpu
from memlint.rules.finding import Safety
from memlint.typed import Any

ADAM = {"adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused", "adam", "adam_torch", "adamw_anyprecision"}
"""Optimizers with two 32-bit states a parameter that bitsandbytes has in 8 bit."""

GROUPED = {"grpo", "rloo", "ppo", "online_dpo", "gkd"}
"""Objectives whose batch must stay divisible by the number of generations, or feeds a generation step."""

CONTRASTIVE = {"contrastive", "clip", "simcse", "sentence_similarity", "embedding"}
"""Objectives whose other samples are the negatives: a smaller micro batch is another loss."""

NORMALISED_BY_BATCH = {"resnet", "efficientnet", "mobilenet_v1", "mobilenet_v2", "regnet", "convnextv2", "densenet"}
"""Model types with BatchNorm, whose statistics are those of the micro batch."""

LOGIT_LOSSES = {"causal_lm", "seq2seq_lm", "masked_lm", "dpo", "orpo", "kto", "grpo", "simpo", "cpo"}

MIN_SEQUENCE = 512


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do. `changes` are canonical facts; a lower `cost` intrudes less."""

    title: str
    group: str
    safety: Safety
    cost: float
    changes: Mapping[str, Any] = field(hash=False)


def steps_for(assessment: Assessment) -> list[Step]:
    """Every step that is sound for a run on its card and would change something, least intrusive first."""
    if assessment.gpu is None:
        return []
    found = [step for rule in RULES for step in rule(assessment.run, assessment.gpu)]
    if assessment.architecture is not None and assessment.architecture.model_type in NORMALISED_BY_BATCH:
        found = [step for step in found if step.group != "batch"]
    return sorted(found, key=lambda step: step.cost)


def _checkpointing(run: TrainingRun, gpu: Gpu) -> Iterator[Step]:
    """Same gradients, a second forward pass: 20-40 % more time."""
    on = {} if run.value("checkpointing.enabled", False) else {"checkpointing.enabled": True}
    if on:
        yield Step("turn gradient checkpointing on", "checkpointing", Safety.SAFE, 1, on)
    if run.value("checkpointing.offload", False) is False:
        changes = {**on, "checkpointing.offload": True}
        yield Step("checkpoint activations to the CPU", "checkpointing", Safety.SUGGEST, 4, changes)


def _frozen_base(run: TrainingRun, gpu: Gpu) -> Iterator[Step]:
    """A frozen base gains nothing from 32 bits; a base in training does (master weights)."""
    if run.value("model.dtype") != "float32" or run.value("quantization.method", "none") != "none":
        return
    if run.value("adapter.method", "none") != "none":
        dtype, safety = ("bfloat16", Safety.SAFE) if gpu.bf16 else ("float16", Safety.UNSAFE)
        yield Step(f"hold the frozen base in {dtype}", "dtype", safety, 1, {"model.dtype": dtype})
    elif gpu.bf16:
        title = "hold the weights in bfloat16, without float32 master weights"
        yield Step(title, "dtype", Safety.SUGGEST, 6, {"model.dtype": "bfloat16"})


def _double_quantization(run: TrainingRun, gpu: Gpu) -> Iterator[Step]:
    """4.5 -> 4.13 bits a weight."""
    if run.value("quantization.method") == "bnb_4bit" and run.value("quantization.double_quant", False) is False:
        changes = {"quantization.double_quant": True}
        yield Step("quantize the quantization constants too", "double_quant", Safety.SAFE, 1, changes)


def _fused_loss(run: TrainingRun, gpu: Gpu) -> Iterator[Step]:
    """Same loss up to rounding; needs a kernel library that knows the model."""
    if run.value("loss.logits", "full") == "full" and run.value("objective", "causal_lm") in LOGIT_LOSSES:
        yield Step("use a fused loss that keeps no logits", "loss", Safety.SUGGEST, 2, {"loss.logits": "fused"})


def _attention(run: TrainingRun, gpu: Gpu) -> Iterator[Step]:
    """Eager attention keeps the score matrices; SDPA computes the same without."""
    attention = run.value("model.attention")
    if attention == "eager":
        yield Step("use SDPA attention", "attention", Safety.SUGGEST, 2, {"model.attention": "sdpa"})
    half = run.value("precision", "fp32") != "fp32" or run.value("model.dtype") in ("bfloat16", "float16")
    if attention in ("eager", "sdpa") and half and gpu.compute_capability >= (8, 0):
        changes = {"model.attention": "flash_attention_2"}
        yield Step("use FlashAttention 2", "attention", Safety.SUGGEST, 2.5, changes)


def _autocast(run: TrainingRun, gpu: Gpu) -> Iterator[Step]:
    """bfloat16 where the card computes it; float16 would need a loss scaler and can overflow."""
    if run.value("precision") == "fp32" and gpu.bf16 and run.value("model.dtype", "float32") == "float32":
        yield Step("compute in bfloat16 (autocast)", "precision", Safety.UNSAFE, 3, {"precision": "bf16-mixed"})


def _micro_batch(run: TrainingRun, gpu: Gpu) -> Iterator[Step]:
    """A smaller micro batch with more accumulation: the same effective batch, where the loss allows it."""
    size, steps = run.value("batch.micro_batch_size"), run.value("batch.gradient_accumulation_steps", 1)
    if not isinstance(size, int) or not isinstance(steps, int) or size < 2 or steps < 1:
        return
    if run.value("objective") in GROUPED | CONTRASTIVE or run.value("optimizer.in_backward", False) is True:
        return
    for factor in (f for f in range(2, size + 1) if size % f == 0):
        small, more = size // factor, steps * factor
        title = f"micro-batch {size} -> {small}, gradient accumulation {steps} -> {more}"
        changes = {"batch.micro_batch_size": small, "batch.gradient_accumulation_steps": more}
        yield Step(title, "batch", Safety.UNSAFE, 3 + factor / size, changes)


def _optimizer(run: TrainingRun, gpu: Gpu) -> Iterator[Step]:
    """8-bit states: 8 -> 2 bytes a parameter. bitsandbytes' optimizers know no sharded or offloaded parameters."""
    sharded = str(run.value("parallel.strategy", "none")).startswith(("zero", "fsdp", "megatron"))
    if run.value("optimizer.name") not in ADAM or sharded or run.value("adapter.method", "none") != "none":
        return
    yield Step("use 8-bit AdamW", "optimizer", Safety.UNSAFE, 4, {"optimizer.name": "adamw_bnb_8bit"})
    paged = {"optimizer.name": "paged_adamw_8bit"}
    yield Step("use 8-bit AdamW with paged states", "optimizer", Safety.UNSAFE, 4.5, paged)


def _sharding(run: TrainingRun, gpu: Gpu) -> Iterator[Step]:
    """Shard what every GPU holds a copy of, then move it off the GPU."""
    gpus, nodes = run.value("parallel.gpus", 1), run.value("parallel.nodes", 1)
    strategy = run.value("parallel.strategy", "none")
    ladder = ("zero1", "zero2", "zero3")
    if isinstance(gpus, int) and isinstance(nodes, int) and gpus * nodes > 1:
        above = ladder[ladder.index(strategy) + 1 :] if strategy in ladder else ladder[1:]
        for rank, stage in enumerate(above if strategy in ("none", "ddp", *ladder) else ()):
            title = f"shard with ZeRO stage {stage[-1]}"
            yield Step(title, "sharding", Safety.SUGGEST, 5 + rank * 0.5, {"parallel.strategy": stage})
        if strategy in ("none", "ddp"):
            yield Step("shard with FSDP 2", "sharding", Safety.SUGGEST, 6, {"parallel.strategy": "fsdp2"})
    if strategy in ladder and run.value("parallel.offload_optimizer", "none") == "none":
        changes = {"parallel.offload_optimizer": "cpu"}
        yield Step("move the optimizer states to the CPU", "offload", Safety.SUGGEST, 6.5, changes)
    if strategy in ("zero3", "fsdp1", "fsdp2") and run.value("parallel.offload_params", "none") == "none":
        changes = {"parallel.offload_params": "cpu", "parallel.offload_optimizer": "cpu"}
        yield Step("move parameters and optimizer states to the CPU", "offload", Safety.SUGGEST, 7, changes)


def _adapter(run: TrainingRun, gpu: Gpu) -> Iterator[Step]:
    """Train an adapter instead of the model, or quantize the base below an adapter."""
    if run.value("quantization.method", "none") != "none" or run.value("model.id") is None:
        return
    compute = "bfloat16" if gpu.bf16 else "float16"
    quantized = {
        "quantization.method": "bnb_4bit",
        "quantization.quant_type": "nf4",
        "quantization.double_quant": True,
        "quantization.compute_dtype": compute,
    }
    if run.value("adapter.method") == "lora":
        yield Step("load the frozen base in 4 bit (QLoRA)", "dtype", Safety.SUGGEST, 6, quantized)
    elif run.value("adapter.method", "none") == "none":
        lora = {"adapter.method": "lora", "adapter.r": 16, "adapter.alpha": 32, "adapter.target_modules": "all-linear"}
        yield Step("train a LoRA adapter on a 4-bit base (QLoRA)", "adapter", Safety.SUGGEST, 9, {**lora, **quantized})
        if run.value("model.dtype") == "float32":
            lora["model.dtype"] = compute
        yield Step("train a LoRA adapter (rank 16) on a 16-bit base", "adapter", Safety.SUGGEST, 8, lora)


def _sequence(run: TrainingRun, gpu: Gpu) -> Iterator[Step]:
    """Shorter samples: text is lost."""
    length = run.value("batch.sequence_length")
    if not isinstance(length, int) or isinstance(length, bool):
        return
    for rank, divisor in enumerate((2, 4)):
        if length % divisor == 0 and length // divisor >= MIN_SEQUENCE:
            title = f"sequence length {length} -> {length // divisor}"
            changes = {"batch.sequence_length": length // divisor}
            yield Step(title, "sequence", Safety.SUGGEST, 7 + rank, changes)


RULES: tuple[Callable[[TrainingRun, Gpu], Iterator[Step]], ...] = (
    _checkpointing,
    _frozen_base,
    _double_quantization,
    _fused_loss,
    _attention,
    _autocast,
    _micro_batch,
    _optimizer,
    _sharding,
    _adapter,
    _sequence,
)
