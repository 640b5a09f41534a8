"""Unsloth: `FastLanguageModel.from_pretrained` and `get_peft_model`.

Defaults read in unsloth 2025.11, `models/loader.py`, `models/llama.py`, `models/_utils.py`: load_in_4bit True, max_seq_length
2048, dtype None (bfloat16 if the card has it, else float16), nf4 with double quantization, LoRA r 16 on all linears,
`use_gradient_checkpointing="unsloth"` (checkpointing with activations offloaded to the CPU).
"""

from __future__ import annotations

from memlint.dialects.derive import derive
from memlint.facts import Fact, Origin, Status, default, fixed
from memlint.frameworks.models import load
from memlint.frameworks.names import class_name
from memlint.frameworks.native import plain
from memlint.frameworks.state import instances
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.values import Array, Call, Instance, Symbol

FAST = frozenset({"FastLanguageModel", "FastModel", "FastVisionModel", "FastLlamaModel", "FastMistralModel", "FastTextModel",
                  "FastSentenceTransformer"})  # fmt: skip
_LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


DEFAULTS: dict[str, object] = {
    "batch.micro_batch_size": 4, "batch.gradient_accumulation_steps": 2, "optimizer.name": "adamw_bnb_8bit",
    "eval.batch_size": 4, "eval.accumulation_steps": 2,
}  # fmt: skip
"""What unsloth writes into TRL's configuration classes (unsloth 2026.8 `models/rl.py`, "Edit GA / bsz and weight_decay")."""


def bf16_or(span: object, note: str) -> Fact:
    """bfloat16 on cards that have it, float16 elsewhere."""
    return Fact(None, Status.CHOICES, (Origin(None, note),), ("bfloat16", "float16"), "depends on the card", "gpu.bf16")


def load_fast(name: str, call: Call) -> Fact:
    """`model, tokenizer = FastLanguageModel.from_pretrained(...)`."""
    kwargs = dict(call.kwargs)
    model_name = kwargs.pop("model_name", None) or (call.args[0] if call.args else None)
    length = kwargs.get("max_seq_length") or (call.args[1] if len(call.args) > 1 else default(2048, "unsloth default"))
    dtype = kwargs.get("dtype") or (call.args[2] if len(call.args) > 2 else None)
    if dtype is None or (dtype.known and dtype.value is None):
        kwargs["dtype"] = bf16_or(call.span, "unsloth: dtype=None takes bfloat16 where the card has it")
    if model_name is not None:
        kwargs["pretrained_model_name_or_path"] = model_name
    sentences = (
        name == "FastSentenceTransformer"
    )  # unsloth 2026.8 `models/sentence_transformer.py`: nothing is quantized by default
    full = kwargs.get("full_finetuning")
    eight = kwargs.get("load_in_8bit")
    sixteen = kwargs.get("load_in_16bit")
    off = sentences or any(f is not None and f.known and f.value is True for f in (full, eight, sixteen))
    if "load_in_4bit" not in kwargs and not off:
        kwargs["load_in_4bit"] = default(True, "unsloth default")
    if off and not (sentences and "load_in_4bit" in kwargs):
        kwargs["load_in_4bit"] = fixed(False, call.span)
    kwargs.setdefault("bnb_4bit_quant_type", default("nf4", "unsloth default"))
    kwargs.setdefault("bnb_4bit_use_double_quant", default(True, "unsloth default"))
    if "bnb_4bit_compute_dtype" not in kwargs:
        kwargs["bnb_4bit_compute_dtype"] = kwargs["dtype"]
    made = Call(call.name, (), kwargs, call.span, call.open)
    head = "AutoModelForImageTextToText" if "Vision" in name else "AutoModelForCausalLM"
    head = "SentenceTransformer" if sentences else head
    whole = full is not None and full.known and full.value is True
    fast = name == "FastLanguageModel" and not whole  # those it passes on to FastModel, whose modules are compiled
    model = load(head, made, **{".unsloth": True, "max_seq_length": length} | ({".kernels": True} if fast else {}))
    if whole:
        _checkpointing(model.value, kwargs.get("use_gradient_checkpointing") or default("unsloth", "unsloth default"))
    if sentences:
        return model
    tokenizer = fixed(Instance(Symbol("transformers.AutoTokenizer"), call), call.span)
    return fixed(Array((model, tokenizer), "tuple"), call.span)


KERNELS = {
    "kernels": default(["rms_norm", "rope", "swiglu", "lora"], "unsloth: FastLanguageModel"),
    "model.attention": default("xformers", "unsloth: FastLanguageModel without flash-attn"),
}
"""What its models of the Llama line are computed with (unsloth 2024.1 to 2026.8 `kernels/`, `models/llama.py`, `HAS_FLASH_ATTENTION`,
`HAS_XFORMERS`)."""


def patched(facts: dict[str, Fact]) -> dict[str, Fact]:
    """What importing unsloth changes in a trainer: the precision, defaults of TRL's configurations, the loss of language models, which
    its own chunked kernel computes (`unsloth_fused_ce_loss`; `loss_type` is pinned to it), and experts, which are packed although they
    are no linear layers (unsloth_zoo 2026.8 `temporary_patches/moe_utils_bnb4bit.py`, `gpt_oss.py`).
    """
    changed = {"precision": precision(facts)}
    for key, value in DEFAULTS.items():
        fact = facts.get(key)
        if fact is not None and fact.status is Status.DEFAULT and fact.origin and fact.origin[0].note.startswith("trl "):
            changed[key] = default(value, "unsloth default")
    logits, objective = facts.get("loss.logits"), facts.get("objective")
    if objective is not None and objective.value == "causal_lm" and logits is not None and logits.status is Status.DEFAULT:
        changed["loss.logits"] = default("fused", "unsloth: unsloth_fused_ce_loss")
    method = facts.get("quantization.method")
    if method is not None and method.value == "bnb_4bit":
        changed["quantization.experts"] = default(True, "unsloth: 4-bit experts")
    return changed


def precision(facts: dict[str, Fact]) -> Fact:
    """What unsloth's trainers make of `bf16` and `fp16` (unsloth 2026.8 `models/rl.py`, `models/vision.py`).

    Without them they autocast: in float16 over float16 weights, else in bfloat16; float32 weights that were asked for stay alone on
    cards without bfloat16. All weights of a model in bfloat16 are trained without autocast, whatever the arguments say.
    """
    stated, loaded = facts["precision"], facts.get("model.dtype")
    if loaded is None or not loaded.values:
        return stated
    full = all(key in facts and facts[key].value == "none" for key in ("adapter.method", "quantization.method"))
    if stated.status is not Status.DEFAULT and not (full and "bfloat16" in loaded.values):
        return stated
    if loaded.value == "float32":
        origin = Origin(None, "unsloth: autocast in bfloat16 where the card has it")
        return Fact(None, Status.CHOICES, (origin,), ("bf16-mixed", "fp32"), "depends on the card", "gpu.bf16")
    modes = {"bfloat16": "bf16-true" if full else "bf16-mixed", "float16": "fp16-mixed"}
    if not all(value in modes for value in loaded.values):
        return stated
    return derive(lambda value: modes[value], loaded, note="unsloth decides by the dtype of the weights")


def sequence_length(trainer: Instance) -> Fact | None:
    """The length of a model that unsloth loaded, which its SFTTrainer puts over `max_length` (unsloth 2026.8 `models/rl.py`,
    `length_check`); `max_seq_length` of the arguments wins where it is shorter. None for other models and trainers."""
    if class_name(trainer) != "SFTTrainer":
        return None
    own = next((m.slots["max_seq_length"] for m in instances(trainer.slots.get("model")) if ".unsloth" in m.slots), None)
    if not isinstance(own, Fact):
        return None
    configs = [c.slots.get("max_seq_length") for c in instances(trainer.slots.get("args"))]
    stated = next(
        (f for f in (*configs, trainer.slots.get("max_seq_length")) if isinstance(f, Fact) and f.value is not None), None
    )
    if stated is None:
        return plain(own)
    return derive(lambda asked, most: min(asked, most), plain(stated), plain(own))


def rollout_window(trainer: Instance) -> Fact | None:
    """The context window of the vLLM that unsloth loaded with the model (`fast_inference=True`; unsloth 2026.8 `models/llama.py` gives
    `load_vllm` the model's `max_seq_length`): prompts and completions together are shorter. None for other models."""
    for model in instances(trainer.slots.get("model")):
        fast, length = model.call.kwargs.get("fast_inference"), model.slots.get("max_seq_length")
        if ".unsloth" in model.slots and fast is not None and fast.value is True and isinstance(length, Fact):
            return plain(length)
    return None


def _checkpointing(model: Instance, given: Fact) -> None:
    switch = plain(given)
    if switch.known:
        model.slots[".checkpointing"] = Fact(switch.value not in (False, None), switch.status, switch.origin)
        if switch.value == "unsloth":
            model.slots[".offload"] = Fact(True, switch.status, switch.origin)
    else:
        model.slots[".checkpointing"] = switch


def _whole_modules(kwargs: dict[str, Fact]) -> None:
    """The embedding among the targets is trained whole instead (unsloth 2026.8 `models/llama.py`, `get_peft_model`)."""
    targets = kwargs["target_modules"]
    items = targets.value.items if targets.known and isinstance(targets.value, Array) else ()
    whole = [item for item in items if item.value == "embed_tokens"]
    if not whole:
        return
    kwargs["target_modules"] = targets._replace(value=Array([item for item in items if item not in whole]))
    saved = kwargs.get("modules_to_save")
    given = saved.value.items if saved is not None and isinstance(saved.value, Array) else ()
    kwargs["modules_to_save"] = Fact(Array([*given, *whole]), targets.status, targets.origin)


def adapt(machine: Machine, call: Call) -> Fact | None:
    """`FastLanguageModel.get_peft_model(model, ...)`."""
    model = call.argument("model", 0)
    if model is None or not isinstance(model.value, Instance):
        return None
    kwargs = {
        k: f for k, f in call.kwargs.items() if k not in {"model", "use_gradient_checkpointing", "random_state", "max_seq_length"}
    }
    kwargs.setdefault("r", call.args[1] if len(call.args) > 1 else default(16, "unsloth default"))
    kwargs.setdefault("lora_alpha", default(16, "unsloth default"))
    kwargs.setdefault("lora_dropout", default(0.0, "unsloth default"))
    if "target_modules" not in kwargs:
        vision = any(k.startswith("finetune_") for k in kwargs)
        targets = "all-linear" if vision else Array([fixed(name) for name in _LINEARS])
        kwargs["target_modules"] = default(targets, "unsloth default")
    kwargs = {k: f for k, f in kwargs.items() if not k.startswith("finetune_")}
    _whole_modules(kwargs)
    made = Call(call.name, (), kwargs, call.span, call.open)
    config = Instance(Symbol("peft.LoraConfig"), made, dict(kwargs))
    machine.write(model.value, ".adapter", fixed(config, call.span))
    switch = call.kwargs.get("use_gradient_checkpointing") or default("unsloth", "unsloth default")
    checkpointing = plain(switch)
    if checkpointing.known:
        machine.write(
            model.value,
            ".checkpointing",
            Fact(checkpointing.value not in (False, None), checkpointing.status, checkpointing.origin),
        )
        if checkpointing.value == "unsloth":
            machine.write(model.value, ".offload", Fact(True, checkpointing.status, checkpointing.origin))
    return model
