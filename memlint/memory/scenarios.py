"""A run with facts that have several possible values -> the decided runs that bound it."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice, product

from memlint.facts import Fact, Status, TrainingRun, fixed
from memlint.gpus.gpu import Gpu
from memlint.memory.media import media_of
from memlint.memory.tiles import tiles_of
from memlint.memory.versions import stack_of, states_transformers
from memlint.models.architecture import Architecture
from memlint.typed import Any

MOST = 16
"""Combinations looked at; beyond that the first ones bound the estimate."""

MANY = 1024
"""GPUs of a job that is larger than any that is not named."""

SHARDED = ("fsdp1", "fsdp2", "zero1", "zero2", "zero3", "megatron")
SHARDED_BY_LAUNCH = ("torchtune", "open_instruct", "verl", "torchtitan", "nemo", "megatron")
"""Frameworks whose configs do not say how a job is sharded: the launch line, or the recipe that it names, does."""


def scenarios(run: TrainingRun, architecture: Architecture, gpu: Gpu | None) -> list[TrainingRun]:
    """Every combination of choices, the expected one (first choices, the card's own branch) first.

    Facts that one condition decides (`decided_by`) move together; a dtype that only the checkpoint knows is one of its usual ones.
    """
    decided: dict[str, Fact] = {}
    together: dict[str, list[str]] = defaultdict(list)
    for key, fact in run.facts.items():
        if fact.status is not Status.CHOICES or not fact.choices:
            continue
        if fact.decided_by == "gpu.bf16" and gpu is not None:
            decided[key] = fixed(fact.choices[0] if gpu.bf16 else fact.choices[-1], note=f"bf16 support of {gpu.name}")
        else:
            together[fact.decided_by or key].append(key)
    run = run.with_facts(decided) if decided else run
    options = [_options(run, keys) for keys in together.values()] + _adapters(run) + _frozen(run) + _experts(run, architecture)
    options += _references(run) + _apex(run) + _packages(run, architecture)
    options += _lengths(run, architecture) + _ranks(run) + _unpadded(run) + _tiles(run, architecture)
    combined = ({key: value for part in parts for key, value in part.items()} for parts in islice(product(*options), MOST))
    return [
        loaded
        for values in combined
        for loaded in _loaded(run.with_values(values, "one of its choices") if values else run, architecture)
    ]


def bounded_over(variants: list[TrainingRun]) -> list[str]:
    """A sentence for each fact that differs between the decided runs."""
    if len(variants) == 1:
        return []
    sentences = []
    for key in dict.fromkeys(key for run in variants for key in run.facts):
        values = list(dict.fromkeys(str(run.value(key)) for run in variants))
        if len(values) == 1:
            continue
        if key == "framework.versions":
            sentences.append(WRITTEN_GELU if _is_apex_amp(variants[0]) else PACKED_EXPERTS)
        elif key == "parallel.gpus" and "None" in values:
            sentences.append(
                "nothing says over how many GPUs the job is sharded: the estimate is for one, its low end for very many"
            )
        elif key == "parallel.strategy" and "None" in values:
            sentences.append("the launch says how the job is sharded, and it is not known: the low end is for FSDP")
        elif key == "batch.micro_batch_size" and run_is_unpadded(variants[0]):
            sentences.append(
                "samples are not padded and known by their cap only: the low end is for one at the cap and empty others"
            )
        elif key == "kernels":
            sentences.append(
                "the model has kernels of its own that may be installed (xielu, flash-linear-attention) or not: the estimate spans both"
            )
        elif key == "batch.sequence_length" and "None" in values:
            continue  # `setup` says what it takes
        else:
            sentences.append(f"{key} may be {' or '.join(values)}: the estimate is bounded over all of them")
    return sentences


WRITTEN_GELU = (
    "apex's amp dates the code to torch before 1.6: models of that time keep three tensors for a GELU that is written out, or one for "
    "torch's kernel; the estimate spans both"
)
PACKED_EXPERTS = (
    "transformers 4 packs the experts, 5 leaves them in 16 bits, and nothing states the version: the estimate spans both"
)


def _options(run: TrainingRun, keys: list[str]) -> list[dict[str, Any]]:
    """The joint values of facts that one condition decides."""
    count = max(len(run.facts[key].choices) for key in keys)
    return [{key: (c := run.facts[key].choices)[min(index, len(c) - 1)] for key in keys} for index in range(count)]


def _adapters(run: TrainingRun) -> list[list[dict[str, Any]]]:
    """Whether an adapter that the script decides about by means that were not understood exists: everything may be trained, or a LoRA
    on a base that may be quantized."""
    if not _unknown(run, "adapter.method"):
        return []
    packed = {"quantization.method": "bnb_4bit"} if _unknown(run, "quantization.method") else {}
    whole, low_rank = {"adapter.method": "none"}, {"adapter.method": "lora", **packed}
    if _unknown(run, "reference_model"):  # with an adapter the base is the reference
        whole["reference_model"], low_rank["reference_model"] = "copy", "none"
    return [[whole, low_rank]]


def _references(run: TrainingRun) -> list[list[dict[str, Any]]]:
    """Whether a second model that was not understood is on the card: a copy of the first, or none; with an adapter rarely one."""
    if not _unknown(run, "reference_model") or _unknown(run, "adapter.method"):
        return []
    kinds = ("copy", "none") if run.value("adapter.method", "none") == "none" else ("none", "copy")
    return [[{"reference_model": kind} for kind in kinds]]


def _frozen(run: TrainingRun) -> list[list[dict[str, Any]]]:
    """A model of which a part is frozen: between its head alone and all of it. Names that are listed are few as a rule."""
    stated = [key for key in ("trainable.modules", "trainable.layers") if key in run.facts]
    if not stated or run.value("adapter.method", "none") != "none":
        return []
    head: dict[str, Any] = {"trainable.modules": []}
    everything: dict[str, Any] = {"trainable.modules": None}
    return [[head, everything] if any(_known(run, key) for key in stated) else [everything, head]]


def _experts(run: TrainingRun, architecture: Architecture) -> list[list[dict[str, Any]]]:
    """Whether bitsandbytes packs the experts, where nothing states the version of transformers: 4.57 has a linear layer for each, 5.0
    stacks them in parameters that quantisers pass by."""
    packs = run.value("quantization.method") in ("bnb_4bit", "bnb_8bit") and not _known(run, "quantization.experts")
    experts = any(not name.endswith("_table") for name, *_ in architecture.stacked)  # towers stack tables of positions
    if not packs or not experts or states_transformers(run):
        return []
    versions = run.value("framework.versions") or {}
    return [[{}, {"framework.versions": {**versions, "transformers": "4.57"}}]]


def _apex(run: TrainingRun) -> list[list[dict[str, Any]]]:
    """Which of the torches that apex's amp is for (mixed precision is torch's own since 1.6), where nothing states it: model code of that
    time has its GELU written out, or takes the one kernel that torch 1.4 brought to transformers."""
    versions = run.value("framework.versions") or {}
    if not _is_apex_amp(run) or "torch" in versions or "transformers" in versions:
        return []
    return [[{"framework.versions": {**versions, "torch": torch}} for torch in ("1.3", "1.5")]]


def _is_apex_amp(run: TrainingRun) -> bool:
    """Weights in float16 with float32 copies and apex's fused Adam: its amp at level O2."""
    fused = run.value("optimizer.name") == "adamw_apex_fused" and run.value("optimizer.master_weights") is True
    return fused and run.value("precision") == "fp16-true" and run.value("parallel.strategy", "none") in ("none", "ddp")


PACKAGES = {
    "apertus": "xielu", "qwen3_next": "gated_delta", "qwen3_5": "gated_delta", "qwen3_5_text": "gated_delta", "qwen3_5_moe": "gated_delta",
    "qwen3_5_moe_text": "gated_delta",
}  # fmt: skip
"""Model types that take the kernels of another package where it is installed, and PyTorch's operations, which keep more, where not."""


def _packages(run: TrainingRun, architecture: Architecture) -> list[list[dict[str, Any]]]:
    """Kernels of a model that are found when it is loaded: neither a script nor a configuration says so.

    axolotl packs samples for a gated delta rule with flash-linear-attention only (067b021c8b `monkeypatch/models/qwen3_next/modeling.py`,
    `qwen3_5/modeling.py`: it raises without).
    """
    name, kernels = PACKAGES.get(architecture.model_type), tuple(run.value("kernels") or ())
    own = run.value("parallel.strategy") == "megatron"  # which has layers of its own
    if not name or name in kernels or own:
        return []
    installed = {"kernels": [*kernels, name]}
    needed = name == "gated_delta" and run.value("framework.name") == "axolotl" and run.value("batch.packing") is True
    return [[installed]] if needed else [[{}, installed]]


def _lengths(run: TrainingRun, architecture: Architecture) -> list[list[dict[str, Any]]]:
    """Texts whose length nothing states: up to the model's limit, which is what is expected, and as short as a text can be."""
    return [[{}, {"batch.sequence_length": 1}]] if open_length(run, architecture) else []


def open_length(run: TrainingRun, architecture: Architecture) -> bool:
    """True when nothing states how long the texts are that a model is trained on."""
    stated = any(_known(run, key) for key in ("batch.sequence_length", "batch.sequence_length_max"))
    media = media_of(run.value)
    return not stated and not media.latent_tokens + media.text_tokens and bool(architecture.max_positions)


def length_is_cap(run: TrainingRun) -> bool:
    """True where texts are cut at `batch.sequence_length` and neither packed nor padded up to it: nothing says that any is that long."""
    stated = run.value("batch.sequence_length") is not None
    filled = run.value("batch.packing") or run.value("batch.pad_to_max_length")
    unpacked = run.value("batch.packing") is False and run.value("batch.sequence_length_is_cap") is not False
    return stated and not filled and bool(unpacked or run.value("batch.sequence_length_is_cap"))


def _tiles(run: TrainingRun, architecture: Architecture) -> list[list[dict[str, Any]]]:
    """Images that a processor cuts up by their shape, which nothing states."""
    if not media_of(run.value).images or _known(run, "batch.image_tiles"):
        return []
    counts = dict.fromkeys(tiles_of(architecture.model_type, architecture.config))
    return [[{"batch.image_tiles": count} for count in counts]] if counts else []


def _unpadded(run: TrainingRun) -> list[list[dict[str, Any]]]:
    """Samples that are not padded take their own lengths: all at the cap, or one of them and next to nothing for the others."""
    return [[{}, {"batch.micro_batch_size": 1}]] if run_is_unpadded(run) else []


def run_is_unpadded(run: TrainingRun) -> bool:
    """True where the tokens of a micro-batch are those of its samples, whose lengths are known by their cap only."""
    several = isinstance(size := run.value("batch.micro_batch_size"), int) and size > 1
    return several and bool(run.value("batch.padding_free")) and not run.value("batch.packing") and _is_cap(run)


def _is_cap(run: TrainingRun) -> bool:
    """Rollouts end where they end, and texts are cut at a length that few of them reach."""
    generated = run.value("objective") in ("grpo", "rloo", "ppo", "online_dpo")
    return bool(run.value("batch.sequence_length_is_cap")) or generated


def _ranks(run: TrainingRun) -> list[list[dict[str, Any]]]:
    """A job that is sharded as nothing states: not at all, or over so many GPUs that a share of the model is nothing."""
    if not open_ranks(run):
        return []
    gpus, strategy = run.value("parallel.gpus"), run.value("parallel.strategy")
    return [[{}, {"parallel.gpus": gpus or MANY, "parallel.strategy": strategy or "fsdp2"}]]


def open_ranks(run: TrainingRun) -> bool:
    """True when a job is sharded and nothing states over how many GPUs, or when its launch decides and is not known."""
    strategy, gpus = run.value("parallel.strategy"), run.value("parallel.gpus")
    if strategy is None and run.value("framework.name") in SHARDED_BY_LAUNCH:
        return bool(gpus != 1)
    return gpus is None and strategy in SHARDED


def _unknown(run: TrainingRun, key: str) -> bool:
    fact = run.facts.get(key)
    return fact is not None and fact.status is Status.UNKNOWN


def _loaded(run: TrainingRun, architecture: Architecture) -> list[TrainingRun]:
    """The run with the dtype of its checkpoint where `from_pretrained` takes it over (transformers 5, no dtype given).

    Checkpoints whose dtype no source gives are float32 or bfloat16; without autocast the dtype is the precision, too.
    """
    if _known(run, "model.dtype") or not stack_of(run).loads_checkpoint_dtype:
        return [run]
    dtypes = (architecture.dtype,) if architecture.dtype else ("float32", "bfloat16")
    if not _known(run, "precision"):
        return [run.with_values({"model.dtype": d, "precision": PRECISIONS.get(d, "fp32")}, CHECKPOINT) for d in dtypes]
    if not str(run.value("precision")).endswith("-mixed"):
        return [run]
    return [run.with_values({"model.dtype": dtype}, CHECKPOINT) for dtype in dtypes]


CHECKPOINT = "the checkpoint's dtype"
PRECISIONS = {"float32": "fp32", "bfloat16": "bf16-true", "float16": "fp16-true"}
"""The precision of a loop without autocast, by the dtype of its weights."""


def _known(run: TrainingRun, key: str) -> bool:
    fact = run.facts.get(key)
    return fact is not None and fact.known and fact.value is not None
