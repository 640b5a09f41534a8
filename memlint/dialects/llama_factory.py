"""LLaMA-Factory YAML (the schema of `llamafactory-cli train`) and its flags.

Read at LLaMA-Factory ff6d4d12ee: `hparams/*.py`, `model/{adapter,patcher}.py`, `model/model_utils/*.py`,
`train/trainer_utils.py`. On top of the HF Trainer: checkpointing is on unless switched off, and trainable parameters are cast
to float32 unless `pure_bf16`.
"""

from __future__ import annotations

from memlint.dialects import hf_arguments, megatron
from memlint.dialects.context import Context
from memlint.dialects.deepspeed import linked
from memlint.dialects.derive import Facts, Native, boolean, companions, derive, given, integer, names, number, soften, text
from memlint.dialects.from_pretrained import CHECKPOINT_DTYPE
from memlint.dialects.fsdp import with_linked
from memlint.facts import Fact, Problem, default, fixed, unknown
from memlint.read.document import Document
from memlint.typed import Any

NAME = "llama_factory"
FRAGMENT = False
INTERPOLATES = True
NOTE = "LLaMA-Factory ff6d4d12ee default"

_OWN = frozenset({"finetuning_type", "cutoff_len", "lora_target", "lora_rank", "template", "quantization_bit", "flash_attn",
                  "dataset_dir", "pref_loss", "freeze_trainable_layers", "preprocessing_num_workers", "pure_bf16",
                  "plot_loss"})  # fmt: skip
_STAGES = {"pt": "causal_lm", "sft": "causal_lm", "rm": "reward", "dpo": "dpo", "kto": "kto", "ppo": "ppo"}
_ATTENTION = {"fa2": "flash_attention_2", "fa3": "flash_attention_3", "sdpa": "sdpa", "disabled": "eager"}
_BLOCK_OPTIMIZERS = {"use_galore": "galore_adamw", "use_apollo": "apollo_adamw"}
_PLAIN_OPTIMIZERS = {"use_badam": "badam", "use_adam_mini": "adam_mini", "use_muon": "muon"}
_METHODS = {"hqq": "hqq", "eetq": "eetq", "awq": "awq", "gptq": "gptq", "aqlm": "aqlm"}

_MEGATRON = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size", "context_parallel_size")


def recognise(document: Document) -> str | None:
    """A training configuration: `model_name_or_path` with LLaMA-Factory's own keys (not an export or chat file)."""
    keys = document.keys
    own = sorted(keys & _OWN)
    if "model_name_or_path" not in keys or not own or keys & {"export_dir", "infer_backend", "base_model"}:
        return None
    trains = keys & {"do_train", "stage", "per_device_train_batch_size", "learning_rate", "num_train_epochs"}
    if not trains or ("stage" not in keys and "finetuning_type" not in keys):
        return None
    train = (document.text_at("do_train") or "").lower()
    if train in ("false", "no", "off") or (not train and keys & {"do_predict", "do_eval"}):
        return None
    return f"has model_name_or_path and {'finetuning_type' if 'finetuning_type' in keys else 'stage'}"


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of a LLaMA-Factory configuration."""
    context = context or Context()
    native = with_linked(native, context)
    stage = given(native, "stage") or default("sft", NOTE)
    tuning = given(native, "finetuning_type") or default("lora", NOTE)
    result = hf_arguments.training_arguments(native, context.versions, class_name="Seq2SeqTrainingArguments")
    result |= {
        "framework.name": fixed(NAME),
        "batch.sequence_length": _or(native, "cutoff_len", 2048, integer),
        "batch.packing": _packing(native, stage),
        "objective": derive(_objective, stage, given(native, "pref_loss") or default("sigmoid", NOTE)),
        "reference_model": _reference(native, stage, tuning),
    }
    model = given(native, "model_name_or_path")
    on_cpu = given(native, "use_kt")
    if on_cpu is not None and on_cpu.value is not False:
        result["model.id"] = unknown("`use_kt` keeps the experts in host memory and computes them there, which is not modelled")
    elif model is not None:
        result["model.id"] = derive(text, model)
    reward, kind = given(native, "reward_model"), given(native, "reward_model_type")
    if reward is not None and stage.value == "ppo" and kind is not None and kind.value == "full":
        result["model.companions"] = derive(companions, reward)
    if (fp8 := given(native, "fp8")) is not None and fp8.value is True:
        result["compute.linear_dtype"] = fp8.with_value("float8")
    attention = given(native, "flash_attn")
    if attention is not None and attention.value != "auto":
        result["model.attention"] = derive(lambda value: _ATTENTION["disabled" if value is False else value], attention)
    result |= (
        _adapter(native, tuning) | _checkpointing(native) | _optimizer(native, result["optimizer.name"]) | _loss(native, stage)
    )
    pure = given(native, "pure_bf16")
    if pure is not None and pure.value is True:
        result["precision"] = derive(lambda _: "bf16-true", pure)
    result |= _quantization(native, _compute_dtype(native, result["precision"]))
    result |= linked(given(native, "deepspeed"), result, context) | _vision(native) | _megatron(native)
    result["model.dtype"] = _dtype(native, tuning, result)
    if result["adapter.method"].value == "lora":
        result["adapter.dtype"] = default("bfloat16" if result["precision"].value == "bf16-true" else "float32", NOTE)
    context.note((*hf_arguments.problems(native), *_problems(native, tuning)))
    return result


def _or(native: Native, name: str, otherwise: Any, convert: Any) -> Fact:
    fact = given(native, name)
    return derive(convert, fact) if fact is not None else default(otherwise, NOTE)


def _packing(native: Native, stage: Fact) -> Fact:
    """`packing`, or `neat_packing`; packed by default only for pre-training (`hparams/parser.py`)."""
    neat = given(native, "neat_packing")
    if neat is not None and neat.value is True:
        return derive(boolean, neat)
    packing = given(native, "packing")
    return derive(boolean, packing) if packing is not None else default(stage.value == "pt", NOTE)


def _objective(stage: Any, loss: Any) -> str:
    return str(loss) if stage == "dpo" and loss in ("orpo", "simpo") else _STAGES[stage]


def _reference(native: Native, stage: Fact, tuning: Fact) -> Fact:
    """`create_ref_model`: a second model unless LoRA can be switched off (or the loss needs none)."""
    own = given(native, "ref_model")
    loss = given(native, "pref_loss") or default("sigmoid", NOTE)

    def kind(step: Any, method: Any, preference: Any) -> str:
        if step not in ("dpo", "kto", "ppo") or (step == "dpo" and preference in ("orpo", "simpo")):
            return "none"
        return "copy" if own is not None or method != "lora" else "none"

    return derive(kind, stage, tuning, loss)


def _adapter(native: Native, tuning: Fact) -> Facts:
    dora = given(native, "use_dora") or default(False, NOTE)
    result: Facts = {"adapter.method": derive(
        lambda method, on: {"lora": "dora" if boolean(on) else "lora", "oft": "oft"}.get(method, "none"), tuning, dora
    )}  # fmt: skip
    if tuning.value == "freeze":
        result["trainable.layers"] = _or(native, "freeze_trainable_layers", 2, lambda value: abs(integer(value)))
        modules = given(native, "freeze_trainable_modules")
        if modules is not None and modules.value != "all":
            result["trainable.modules"] = derive(_listed, modules)
    if tuning.value == "lora":
        rank, alpha = _or(native, "lora_rank", 8, integer), given(native, "lora_alpha")
        result |= {
            "adapter.r": rank,
            "adapter.alpha": derive(number, alpha) if alpha else soften(derive(lambda r: 2 * r, rank), f"{NOTE}: twice the rank"),
            "adapter.dropout": _or(native, "lora_dropout", 0.0, number),
            "adapter.target_modules": _or(native, "lora_target", "all-linear", _targets),
        }
    saved = given(native, "additional_target")
    if saved is not None and tuning.value in ("lora", "oft"):
        result["adapter.modules_to_save"] = derive(_listed, saved)
    return result


def _listed(value: Any) -> list[str]:
    return [item.strip() for item in value.split(",")] if isinstance(value, str) else [str(item) for item in value]


def _targets(value: Any) -> list[str] | str:
    modules = _listed(value)
    return "all-linear" if modules == ["all"] else names(modules)


def _checkpointing(native: Native) -> Facts:
    """Always on, unless `disable_gradient_checkpointing`; the HF argument changes nothing (`model_utils/checkpointing.py`)."""
    disabled = given(native, "disable_gradient_checkpointing")
    result: Facts = {"checkpointing.enabled": derive(lambda off: not boolean(off), disabled or default(False, NOTE))}
    if result["checkpointing.enabled"].value is not False:
        result["checkpointing.use_reentrant"] = _or(native, "use_reentrant_gc", True, boolean)
    offload = given(native, "use_unsloth_gc")
    if offload is not None:
        result["checkpointing.offload"] = derive(boolean, offload)
    return result


def _optimizer(native: Native, plain: Fact) -> Facts:
    for switch, name in _BLOCK_OPTIMIZERS.items():
        on = given(native, switch)
        if on is not None and on.value is True:
            layerwise = given(native, f"{switch.removeprefix('use_')}_layerwise") or default(False, NOTE)
            result: Facts = {
                "optimizer.name": derive(
                    lambda _, split, base=name: base + ("_layerwise" if boolean(split) else ""), on, layerwise
                ),
                "optimizer.in_backward": derive(boolean, layerwise),
                "optimizer.rank": _or(native, f"{switch.removeprefix('use_')}_rank", 16, integer),
                "optimizer.target_modules": _or(native, f"{switch.removeprefix('use_')}_target", "all-linear", _targets),
            }
            return result
    for switch, name in _PLAIN_OPTIMIZERS.items():
        on = given(native, switch)
        if on is not None and on.value is True:
            return {"optimizer.name": derive(lambda _, base=name: base, on)}
    return {"optimizer.name": plain}


def _loss(native: Native, stage: Fact) -> Facts:
    if stage.value not in ("pt", "sft"):
        return {}
    liger = given(native, "enable_liger_kernel")
    if liger is not None and liger.value is True:
        return {"loss.logits": derive(lambda _: "fused", liger), "loss.kernel": derive(lambda _: "liger_fused_linear_ce", liger)}
    return {"loss.logits": default("full", NOTE)}


def _compute_dtype(native: Native, precision: Fact) -> Fact:
    """`compute_dtype`: the training precision, else the checkpoint's dtype."""
    held = {"bf16-mixed": "bfloat16", "bf16-true": "bfloat16", "fp16-mixed": "float16"}
    if precision.known and precision.value not in held:
        return unknown(CHECKPOINT_DTYPE)
    return derive(held.__getitem__, precision)


def _quantization(native: Native, compute: Fact) -> Facts:
    bits = given(native, "quantization_bit")
    if bits is None:
        return {"quantization.method": default("none", NOTE)}
    how = given(native, "quantization_method") or default("bnb", NOTE)

    def method(width: Any, kind: Any) -> str:
        kind = {"bitsandbytes": "bnb"}.get(str(kind).lower(), str(kind).lower())
        return f"bnb_{integer(width)}bit" if kind == "bnb" else _METHODS[kind]

    result: Facts = {"quantization.method": derive(method, bits, how), "quantization.bits": derive(integer, bits)}
    if result["quantization.method"].value == "bnb_4bit":
        result |= {
            "quantization.quant_type": _or(native, "quantization_type", "nf4", text),
            "quantization.double_quant": _or(native, "double_quantization", True, boolean),
            "quantization.compute_dtype": compute,
            "quantization.storage_dtype": default(compute.value, NOTE) if compute.known else compute,
        }
    return result


def _vision(native: Native) -> Facts:
    """The tower and the projector are frozen unless told otherwise; images are shrunk to `image_max_pixels`."""
    result: Facts = {
        "vision.trainable": _or(native, "freeze_vision_tower", False, lambda value: not boolean(value)),
        "vision.aligner_trainable": _or(native, "freeze_multi_modal_projector", False, lambda value: not boolean(value)),
        "vision.llm_trainable": _or(native, "freeze_language_model", True, lambda value: not boolean(value)),
        "vision.max_pixels": _or(native, "image_max_pixels", 768 * 768, integer),
    }
    return result


def _megatron(native: Native) -> Facts:
    """Arguments of the Megatron backends (`use_mca`, Megatron Bridge); what is not given is the backend's business."""
    if not any(given(native, name) is not None for name in _MEGATRON):
        return {}
    shared = ("optimizer", "seq_length", "micro_batch_size", "loss.logits", "reference_model")
    own = {name: fact for name, fact in native.items() if name not in shared}
    return {key: fact for key, fact in megatron.core(own, NOTE, assume=False).items() if key not in shared}


def _dtype(native: Native, tuning: Fact, result: Facts) -> Fact:
    """The base weights: in the compute dtype; float32 where they are trained (unless pure bf16, BAdam or ZeRO-3)."""
    compute = _compute_dtype(native, result["precision"])
    if result["precision"].value == "bf16-true":
        return derive(lambda _: "bfloat16", result["precision"])
    kept = given(native, "use_badam")
    zero3 = result.get("parallel.strategy")
    trained = tuning.value in ("full", "freeze") and not (kept is not None and kept.value is True)
    if trained and (zero3 is None or zero3.value != "zero3"):
        return default("float32", f"{NOTE}: trainable parameters are cast to float32")
    return default(compute.value, NOTE) if compute.known else compute


def _problems(native: Native, tuning: Fact) -> tuple[Problem, ...]:
    """What `hparams/parser.py` and `finetuning_args.py` refuse or ignore."""
    found: list[Problem] = []

    def add(name: str, message: str, key: str) -> None:
        fact = given(native, key)
        if fact is not None and fact.origin and fact.origin[0].span is not None:
            found.append(Problem(name, message, fact.origin[0].span))

    if given(native, "quantization_bit") is not None and tuning.value not in ("lora", "oft"):
        add("four-bit-without-adapter", "quantization_bit needs finetuning_type lora or oft", "quantization_bit")
    checkpointing = given(native, "gradient_checkpointing", "activation_checkpointing")
    if checkpointing is not None and checkpointing.value is False:
        message = "gradient_checkpointing has no effect here: set disable_gradient_checkpointing: true"
        add("checkpointing-key-without-effect", message, "gradient_checkpointing")
    if tuning.value == "lora":
        for key in ("use_galore", "use_apollo", "use_badam"):
            fact = given(native, key)
            if fact is not None and fact.value is True:
                add("block-optimizer-with-lora", f"{key} cannot be used with LoRA", key)
    return tuple(found)


_WRITE = {
    "batch.sequence_length": "cutoff_len", "batch.packing": "packing", "checkpointing.use_reentrant": "use_reentrant_gc",
    "quantization.double_quant": "double_quantization", "quantization.quant_type": "quantization_type", "adapter.r": "lora_rank",
    "adapter.alpha": "lora_alpha", "adapter.dropout": "lora_dropout", "adapter.modules_to_save": "additional_target",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> native; None where LLaMA-Factory cannot say it."""
    if key in _WRITE:
        return [(_WRITE[key], value)]
    if key == "checkpointing.enabled":
        return [("disable_gradient_checkpointing", not value)]
    if key == "loss.logits" and value in ("fused", "full"):
        return [("enable_liger_kernel", value == "fused")]
    if key == "model.attention":
        native = {canonical: name for name, canonical in _ATTENTION.items()}.get(str(value))
        return [("flash_attn", native)] if native else None
    if key == "quantization.method" and value in ("bnb_4bit", "bnb_8bit"):
        return [("quantization_bit", 4 if value == "bnb_4bit" else 8)]
    if key == "adapter.target_modules":
        return [("lora_target", "all" if value == "all-linear" else ",".join(value) if isinstance(value, list) else value)]
    if key == "adapter.method" and value in ("lora", "none"):
        return [("finetuning_type", "lora" if value == "lora" else "full")]
    if key == "checkpointing.offload":
        return [("use_unsloth_gc", value)]
    if (key, value) in (("precision", "bf16-true"), ("model.dtype", "bfloat16")):
        return [("pure_bf16", True)]
    return hf_arguments.write(key, value)


def alternatives(key: str, value: Any) -> list[list[tuple[str, Any]]]:
    """Those of the training arguments."""
    return hf_arguments.alternatives(key, value)
