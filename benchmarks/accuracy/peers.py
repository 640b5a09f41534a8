"""Two other estimators on the same cases, run from their packages (the `peers` extra), each with its own terms and defaults.

What they predicted is recorded in `data/peers.json`, with what ten more predicted when they were run once.

A case that needs something a peer has no input for is one that it cannot express. Predictions are matched to the metric of the
case with the peer's own terms: allocated is its total without context and fragmentation, reserved without the context.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

from benchmarks.accuracy.cases import DATA, Case
from benchmarks.accuracy.score import Result
from benchmarks.accuracy.tables import by_group
from memlint.models import Architecture, lookup

MIB = 2**20
RECORD = DATA / "peers.json"
SINGLE = ("none", "device_map")


def architecture_of(case: Case) -> Architecture | None:
    """The shape that both peers are given: the one memlint looked up."""
    config = case.run.value("model.config")
    return lookup(case.run.value("model.id"), config=config if isinstance(config, Mapping) else None).architecture


def _ranks(facts: Mapping[str, Any]) -> int:
    return int(facts.get("parallel.gpus", 1)) * int(facts.get("parallel.nodes", 1))


def _sees(facts: Mapping[str, Any]) -> bool:
    """Images are part of the run: neither peer has an input for them."""
    return any(key in facts for key in ("batch.images", "batch.image_size", "model.vision_config"))


def _sequence(facts: Mapping[str, Any]) -> int | None:
    """The length; where only a cap is known, the cap, as a user would give it."""
    return facts.get("batch.sequence_length") or facts.get("batch.sequence_length_max")


def torch_preflight(case: Case, architecture: Architecture) -> int | None:
    """torch-preflight 0.5.0 through its Python interface, LoRA as a frozen fraction of the parameters."""
    from torch_preflight.vram import OptimizerKind, PrecisionMode, RunConfig, Sharding, archdb, estimate_config
    from torch_preflight.vram.costmodel import params_from_transformer_shape
    from torch_preflight.vram.providers.hub import shape_from_config
    from torch_preflight.vram.types import Confidence, ModelKind, ModelProfile

    facts = case.facts
    adapter, strategy = facts.get("adapter.method", "none"), facts.get("parallel.strategy", "none")
    sharding = {
        "none": Sharding.NONE, "device_map": Sharding.NONE, "ddp": Sharding.DDP, "dp": Sharding.DDP, "zero1": Sharding.ZERO1,
        "zero2": Sharding.ZERO2, "zero3": Sharding.ZERO3, "fsdp1": Sharding.ZERO3, "fsdp2": Sharding.ZERO3,
    }.get(strategy)  # fmt: skip
    optimizer = {
        "adamw_bnb_8bit": OptimizerKind.ADAM_8BIT, "paged_adamw_8bit": OptimizerKind.ADAM_8BIT,
        "adafactor": OptimizerKind.ADAFACTOR, "sgd": OptimizerKind.SGD, "lion_8bit": OptimizerKind.LION_8BIT,
    }.get(str(facts.get("optimizer.name", "")), OptimizerKind.ADAMW)  # fmt: skip
    sequence = _sequence(facts)
    degrees = (facts.get(f"parallel.{name}", 1) for name in ("tensor", "pipeline", "context", "expert"))
    if (
        facts.get("quantization.method", "none") != "none"
        or adapter not in ("none", "lora")
        or sharding is None
        or _sees(facts)
        or any((degree or 1) > 1 for degree in degrees)
        or sequence is None
        or "num_experts" in architecture.config
        or "num_local_experts" in architecture.config
        or facts.get("parallel.offload_params", "none") != "none"
    ):
        return None
    profile = archdb.resolve(str(facts.get("model.id", "")))
    if profile is None:
        shape = shape_from_config(
            {"tie_word_embeddings": architecture.tied, **architecture.config, "architectures": ["ForCausalLM"]}
        )
        if shape is None:
            return None
        count = params_from_transformer_shape(shape)
        profile = ModelProfile(architecture.name, count, count, "hub", Confidence.MEDIUM, ModelKind.TRANSFORMER, shape=shape)
    precision = str(facts.get("precision", "fp32"))
    half_weights = facts.get("model.dtype") in ("bfloat16", "float16")
    config = RunConfig(
        batch_size=int(facts["batch.micro_batch_size"]),
        seq_len=sequence,
        precision=(
            PrecisionMode.FP32
            if precision == "fp32"
            else PrecisionMode.PURE_BF16
            if precision.endswith("-true") or half_weights
            else PrecisionMode.AMP
        ),
        optimizer=optimizer,
        gradient_checkpointing=bool(facts.get("checkpointing.enabled")),
        flash_attention=facts.get("model.attention", "sdpa") != "eager",
        accumulation_steps=int(facts.get("batch.gradient_accumulation_steps", 1)),
        world_size=_ranks(facts),
        sharding=sharding,
        offload_optimizer=facts.get("parallel.offload_optimizer", "none") != "none",
        frozen_fraction=0.0 if adapter == "none" else 0.99,
    )
    terms = estimate_config(profile, config, gpu_memory=80 * 2**30, with_remediations=False).breakdown
    context = terms.cuda_context
    return terms.total - {"allocated": context + terms.fragmentation, "reserved": context}.get(case.metric, 0)


def fitcheck(case: Case, architecture: Architecture) -> int | None:
    """fitcheck-llm 0.3.1 through its Python interface; its own refusals (parameter formula 2 % off, experts) applied."""
    from fitcheck import ModelConfig, TrainingConfig, estimate, get_gpu

    facts, config = case.facts, architecture.config
    adapter, method = facts.get("adapter.method", "none"), facts.get("quantization.method", "none")
    quantization = {"none": "none", "bnb_4bit": "nf4", "torchao_nf4": "nf4", "bnb_8bit": "int8"}.get(method)
    targets = facts.get("adapter.target_modules") or ["q_proj", "v_proj"]
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    spelled = {"c_attn": names[:3], "c_proj": ["o_proj", "down_proj"], "w1": ["up_proj"], "w2": ["gate_proj"]}
    targets = names if targets == "all-linear" else list(dict.fromkeys(n for t in targets for n in spelled.get(t, [t])))
    optimizer = str(facts.get("optimizer.name", "adamw"))
    depth, width = architecture.layers, architecture.hidden_size
    shape = (width, depth, architecture.heads, architecture.intermediate_size, architecture.vocab_size)
    if (
        adapter not in ("none", "lora")
        or quantization is None
        or _sees(facts)
        or (quantization != "none" and adapter == "none")
        or facts.get("parallel.strategy", "none") not in SINGLE
        or _ranks(facts) > 1
        or _sequence(facts) is None
        or not set(targets) <= set(names)
        or None in shape
        or "num_experts" in config
        or "num_local_experts" in config
        or optimizer == "adafactor"
    ):
        return None
    hidden, layers, heads, inner, vocab = (int(value) for value in shape if value is not None)
    kv_heads, head_dim = architecture.kv_heads or heads, architecture.head_dim or hidden // heads
    attention = 2 * hidden * heads * head_dim + 2 * hidden * kv_heads * head_dim
    count = vocab * hidden * (1 if architecture.tied else 2) + layers * (attention + 3 * hidden * inner + 2 * hidden) + hidden
    if architecture.params and abs(count / architecture.params - 1) > 0.02:
        return None
    precision = str(facts.get("precision", "fp32"))
    half = facts.get("model.dtype") in ("bfloat16", "float16")
    report = estimate(
        ModelConfig(architecture.name, count, hidden, layers, heads, kv_heads, inner, vocab, head_dim, architecture.tied),
        TrainingConfig(
            precision="bf16" if half or precision.startswith("bf16") else "fp16" if precision.startswith("fp16") else "fp32",
            quantization=quantization,
            double_quant=bool(facts.get("quantization.double_quant")) and quantization == "nf4",
            optimizer="adam8bit" if "8bit" in optimizer else "adamw",
            optimizer_dtype="fp32",
            batch_size=int(facts["batch.micro_batch_size"]),
            seq_len=int(_sequence(facts) or 0),
            lora_rank=None if adapter == "none" else int(facts.get("adapter.r", 16)),
            lora_targets=targets,
            grad_checkpoint=bool(facts.get("checkpointing.enabled")),
            flash_attn=facts.get("model.attention", "sdpa") != "eager",
            grad_accum_steps=int(facts.get("batch.gradient_accumulation_steps", 1)),
        ),
        get_gpu("a100-80"),
    )
    # off the T4 its overhead is 500 MiB and 5 % (overhead_db.py)
    total = report.total_mib - {"allocated": report.overhead_mib, "reserved": 500.0}.get(case.metric, 0.0)
    return int(total * MIB)


PEERS: dict[str, Callable[[Case, Architecture], int | None]] = {"torch-preflight": torch_preflight, "fitcheck-llm": fitcheck}


Errors = dict[str, dict[str, float]]
"""Signed relative errors by peer and case id, for the byte cases that the peer can express."""


def run(cases: list[Case]) -> Errors:
    """Ask the installed peers."""
    found: Errors = {}
    for name, predict in PEERS.items():
        found[name] = {}
        for case in cases:
            architecture = architecture_of(case) if case.bytes else None
            try:
                predicted = predict(case, architecture) if architecture is not None else None
            except (ValueError, TypeError, KeyError):
                continue  # an input that the peer refuses
            if predicted:
                found[name][case.id] = round(predicted / case.bytes - 1, 4)
    return found


def recorded() -> dict[str, Any]:
    """`versions` and `errors` of the peers run here, `others` with the figures of those run once."""
    return json.loads(RECORD.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def record(cases: list[Case]) -> None:
    """Run the installed peers and write what they predict."""
    known = recorded()
    known["versions"] = {name: version(name) for name in PEERS}
    known["errors"] = run(cases)
    RECORD.write_text(json.dumps(known, indent=0) + "\n", encoding="utf-8")


def table(results: list[Result]) -> str:
    """memlint beside the peers by family: median absolute error over the cases a peer can express, and memlint's on the same."""
    found: Errors = recorded()["errors"]
    lines = [f"{'family':<18}{'bytes':>6}{'memlint':>16}" + "".join(f"{name:>20}{'memlint there':>16}" for name in found)]
    for group, members in [*by_group(results).items(), ("all", results)]:
        ours = {r.case.id: r.error for r in members if r.error is not None}
        total = sum(bool(r.case.bytes) for r in members)
        if not total:
            continue
        text = f"{group:<18}{total:>6}{_cell(ours):>16}"
        for errors_of_peer in found.values():
            theirs = {id: errors_of_peer[id] for r in members if (id := r.case.id) in errors_of_peer}
            both = {id: ours[id] for id in theirs if id in ours}
            text += f"{_cell(theirs):>20}{_cell(both):>16}"
        lines.append(text)
    return "\n".join(lines)


def _cell(errors: Mapping[str, float]) -> str:
    if not errors:
        return "-"
    return f"{statistics.median(map(abs, errors.values())):.1%} ({len(errors)})"
