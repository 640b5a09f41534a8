"""Models: how they are loaded or built, what is done to them, and the canonical facts of their final state."""

from __future__ import annotations

import re

from memlint.dialects.bitsandbytes import quantization_facts
from memlint.dialects.from_pretrained import CHECKPOINT_DTYPE, load_dtype, load_facts, objective
from memlint.dialects.peft import METHODS, adapter_facts
from memlint.dialects.trl import model_config
from memlint.facts import Fact, Origin, Site, Status, default, fixed, unknown
from memlint.frameworks.names import class_name
from memlint.frameworks.native import arguments, place, plain
from memlint.frameworks.state import instances
from memlint.read.pyeval.joins import merge, opaque, weaken
from memlint.read.pyeval.values import Array, Call, Class, Instance, Opaque, Symbol, Table, possible
from memlint.source import Span
from memlint.typed import Any
from memlint.versions import Versions

MODEL = Symbol("memlint.model")
CONFIG = Symbol("memlint.model_config")

_MODEL_CLASS = (
    r"^(AutoModel\w*|AutoPeftModel\w*|AutoLigerKernel\w*|\w+(For[A-Z]\w+|LMHeadModel|DoubleHeadsModel|PreTrainedModel)|"
    r"(?!Peft)\w+Model|SentenceTransformer|CrossEncoder|SparseEncoder)$"
)
_NOT_MODELS = r"(Config|Tokenizer|TokenizerFast|Processor|Extractor|Pipeline|Collator\w*)$"


def is_model_class(name: str) -> bool:
    """Whether a transformers-like class name is a model's."""
    return bool(re.match(_MODEL_CLASS, name)) and not re.search(_NOT_MODELS, name)


def is_diffusion_model(name: str) -> bool:
    """Whether a diffusers class is a network (and no scheduler or pipeline)."""
    return bool(re.search(r"(Model|ModelV\d|AutoencoderKL\w*|UNet\w*|AutoencoderTiny|VQModel)$", name))


def load(name: str, call: Call, **state: Any) -> Fact:
    """A model loaded by `Class.from_pretrained(...)` or built by `Class(config)`; `state` are further slots."""
    return fixed(Instance(MODEL, call, {".class": name, **state}), call.span)


def is_model(value: Any) -> bool:
    """Whether a value is a model that the framework models follow."""
    return isinstance(value, Instance) and value.cls == MODEL


def models_in(value: Any) -> list[Instance]:
    """The models an object holds: itself, or those of a module written in the script."""
    if is_model(value):
        return [value]
    if isinstance(value, Instance) and isinstance(value.cls, Class):
        return [m for fact in value.slots.values() if isinstance(fact, Fact) for m in possible(fact) if is_model(m)]
    return []


# --- configs built in code ------------------------------------------------------------------------------------------

_TYPES = {
    "GPTNeoX": "gpt_neox", "GPTNeo": "gpt_neo", "GPTBigCode": "gpt_bigcode", "XLMRoberta": "xlm-roberta",
    "DebertaV2": "deberta-v2", "Qwen2Moe": "qwen2_moe", "Qwen3Moe": "qwen3_moe", "Qwen2VL": "qwen2_vl", "BigBird": "big_bird",
    "MobileBert": "mobilebert", "OpenAIGPT": "openai-gpt", "Speech2Text": "speech_to_text", "CLIPVision": "clip_vision_model",
    "VisionEncoderDecoder": "vision-encoder-decoder", "EncoderDecoder": "encoder-decoder", "Gemma3Text": "gemma3_text",
    "DeepseekV3": "deepseek_v3", "DeepseekV2": "deepseek_v2",
}  # fmt: skip
"""Config class stem -> `model_type`, where it is not the stem in lower case (transformers 5.24, `configuration_*.py`)."""


def model_type(config_class: str) -> str:
    """The `model_type` of a config class's name."""
    stem = config_class.removesuffix("Config")
    return _TYPES.get(stem, stem.lower())


def new_config(name: str, call: Call) -> Fact:
    """A config object: of a model type with its arguments, or one loaded by name."""
    head, _, method = name.partition(".")
    slots: dict[Any, Any] = {}
    for key, fact in call.kwargs.items():
        slots[key] = fact
    if method == "from_pretrained":
        source = call.argument("pretrained_model_name_or_path", 0)
        slots[".id"] = source if source is not None else opaque("the config's name is not given", "config", (), call.span)
    elif method == "for_model":
        slots["model_type"] = call.argument("model_type", 0) or opaque("the model type is not given", "config", (), call.span)
    else:
        slots["model_type"] = fixed(model_type(head), call.span)
    return fixed(Instance(CONFIG, call, slots), call.span)


_IMMATERIAL = (
    r"use_cache|\w+_token_id|(id2label|label2id|problem_type|architectures)|\w*(_eps|_epsilon|dropout\w*|_drop|_pdrop)|"
    r"initializer_range|rope_(theta|scaling|parameters)|torch_dtype|dtype|_name_or_path|name_or_path|trust_remote_code"
)
"""Keys of a model's config that change no tensor's size."""


def config_facts(config: Instance) -> dict[str, Fact]:
    """`model.config` (a config built in code) or `model.id` (a config loaded by name, and what was changed in it)."""
    span = config.call.span
    given = {k: plain(f) for k, f in config.slots.items() if isinstance(k, str) and not k.startswith(".") and isinstance(f, Fact)}
    values = {k: f.value for k, f in given.items() if f.known}
    missing = [k for k, f in given.items() if not f.known and not re.fullmatch(_IMMATERIAL, k)]
    facts: dict[str, Fact] = {}
    source = config.slots.get(".id")
    if source is not None:
        name = plain(source)
        if name.known and name.value in ("", None):
            name = unknown("the name of the model's config is empty unless the launch gives one", place(name))
        changed = {k: v for k, v in values.items() if k not in {"use_cache", "trust_remote_code", "cache_dir", "revision"}}
        facts["model.id"] = name
        if changed:
            facts["model.config"] = Fact(changed, Status.FIXED, (Origin(span),))
        return facts
    if missing == ["vocab_size"] and len(values) > 1:
        # `vocab_size=len(tokenizer)`: the sizes that are written count; the class has a default near the tokenizer's own.
        note = "config built here; its vocab_size is not known, so that of the class is taken"
        facts["model.config"] = Fact(values, Status.DEFAULT, (Origin(span, note),))
        return facts
    if missing:
        fact = given[missing[0]]
        facts["model.config"] = unknown(f"{missing[0]} of the config: {fact.reason or 'depends on a condition'}", span)
        return facts
    status = Status.DEFAULT if any(f.status is Status.DEFAULT for f in given.values()) else Status.FIXED
    facts["model.config"] = Fact(values, status, (Origin(span, "config built here"),))
    return facts


CLASSIFIERS = frozenset({"TimmModel", "TorchvisionModel"})
"""Vision models made by name: float32, with a classification head unless `num_classes=0`."""


# --- what a model's state means -------------------------------------------------------------------------------------


def _cached(model: Instance) -> dict[str, Fact]:
    """`model.config.use_cache = ...`, or what the configuration that it was built with says."""
    for slot in ("config", ".config"):
        config = model.slots.get(slot)
        if isinstance(config, Fact) and isinstance(config.value, Instance):
            cached = config.value.slots.get("use_cache")
            if isinstance(cached, Fact):
                return {"model.use_cache": plain(cached)}
    return {}


def model_facts(model: Instance, versions: Versions) -> tuple[dict[str, Fact], list[Site]]:
    """Canonical facts of a model as it is now, without what a trainer's arguments add."""
    name = str(model.slots[".class"])
    call = model.call
    sites = [Site("from_pretrained", "python", call.span)]
    native = arguments({**call.kwargs})
    if ".id" in model.slots:
        native["pretrained_model_name_or_path"] = plain(model.slots[".id"])
    elif call.args and "pretrained_model_name_or_path" not in native and ".config" not in model.slots:
        native["pretrained_model_name_or_path"] = plain(call.args[0])
    named = native.get("pretrained_model_name_or_path")
    if named is not None and named.known and named.value in ("", None):
        reason = "the model's name is empty unless the launch gives one"
        native["pretrained_model_name_or_path"] = unknown(reason, place(named))
    facts = load_facts(name.partition(".")[0], native, versions)
    if name.startswith("AutoLigerKernel"):  # liger_kernel 0.6 patches the class: `fused_linear_cross_entropy` is on
        facts["loss.logits"] = default("fused", "Liger kernels compute head and loss together", call.span)
    head = _objective(name.partition(".")[0])
    if head is not None:
        facts["objective"] = default(head, f"head of {name.partition('.')[0]}")
    if name in CLASSIFIERS:
        facts["model.dtype"] = default("float32", "torch's default dtype")
        classes = call.kwargs.get("num_classes")
        if classes is None or not (classes.known and classes.value == 0):
            facts["objective"] = default("image_classification", "the model's head")
    config = model.slots.get(".config")
    facts |= _cached(model)
    if isinstance(config, Fact):
        facts.update(_built(config, model, call, versions))
    elif call.kwargs.get("config") is not None:
        facts.update(_with_config(call.kwargs["config"], facts))
    quantization = call.kwargs.get("quantization_config")
    if quantization is not None:
        facts.update(quantization_of(quantization, versions, sites))
    elif call.open and "dtype" not in call.kwargs:
        for key in ("model.dtype", "quantization.method", "model.attention"):
            facts.setdefault(key, unknown(call.open, call.span))
        facts["quantization.method"] = unknown(call.open, call.span)
    if isinstance(config, Fact) or "quantization.method" not in facts:
        facts.setdefault("quantization.method", default("none", "no quantization is asked for"))
    if not isinstance(config, Fact) and not call.kwargs.get("quantization_config"):
        _prequantized(facts)
    facts.update(_mutations(model, facts, versions))
    facts.update(_adapter(model, versions, sites))
    if ".diffusion" in model.slots:
        facts["objective"] = default("diffusion", f"the class {name}")
    return facts, sites


VISION_LANGUAGE = "VL|Llava|PaliGemma|Idefics|Mllama|Gemma3|Gemma4|SmolVLM|InternVL|Mistral3|Pixtral|Florence"
"""Classes of models that read images beside text."""


def _objective(head: str) -> str | None:
    if head.endswith("PreTrainedModel"):
        return None  # the base of a class written in the script, whose head is its own
    if re.search(rf"{VISION_LANGUAGE}|Qwen2_5|Qwen3_5", head):
        return "causal_lm"
    if re.search(r"Whisper|SpeechT5|Speech2Text|SeamlessM4T", head):
        return "speech_seq2seq"
    return objective(head)


def _built(config: Fact, model: Instance, call: Call, versions: Versions) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    known = [config_facts(c) for c in instances(config)]
    if not known:
        return {"model.id": unknown(config.reason or "the config is not followed", call.span)}
    for key in dict.fromkeys(k for one in known for k in one):
        facts[key] = merge([one[key] for one in known if key in one])
    asked = call.kwargs.get("dtype") or call.kwargs.get("torch_dtype")
    if asked is not None:
        facts["model.dtype"] = load_dtype(plain(asked), versions)
    elif "from_config" in call.name and all(".id" in c.slots for c in instances(config)):
        facts["model.dtype"] = unknown(CHECKPOINT_DTYPE)  # PreTrainedModel._from_config takes config.dtype
    elif isinstance(model.slots.get(".default_dtype"), Fact):
        facts["model.dtype"] = load_dtype(plain(model.slots[".default_dtype"]), versions)
    else:
        facts["model.dtype"] = default("float32", "torch's default dtype for a model built from a config")
    return facts


def _with_config(config: Fact, facts: dict[str, Fact]) -> dict[str, Fact]:
    """`from_pretrained(name, config=config)`: the checkpoint's name stands, changed config keys matter."""
    for instance in instances(config):
        if instance.cls == CONFIG:
            found = config_facts(instance)
            attention = instance.slots.get("attn_implementation") or instance.slots.get("_attn_implementation")
            added = {k: v for k, v in found.items() if k == "model.config" and ".id" in instance.slots}
            if isinstance(attention, Fact) and "model.attention" not in facts:
                added["model.attention"] = plain(attention)
            return added
    return {}


def quantization_of(config: Fact, versions: Versions, sites: list[Site]) -> dict[str, Fact]:
    """`quantization.*` of a config that may be None or one of several."""
    options: list[dict[str, Fact]] = []
    if config.status is Status.UNKNOWN:
        return {"quantization.method": unknown(config.reason, place(config))}
    for value in config.values:
        if isinstance(value, Instance):
            sites.append(Site("bitsandbytes", "python", value.call.span))
            native = arguments({k: f for k, f in value.slots.items() if isinstance(f, Fact) and not str(k).startswith(".")})
            found = quantization_facts(class_name(value), native, versions)
            method = found["quantization.method"]
            if method.known and method.status is Status.DEFAULT:
                found["quantization.method"] = Fact(method.value, Status.FIXED, (Origin(value.call.span), *method.origin))
            options.append(found)
        elif isinstance(value, Table):
            options.append(quantization_facts("BitsAndBytesConfig", arguments(dict(value.entries())), versions))
        else:
            status = config.status if config.known else Status.FIXED
            options.append({"quantization.method": Fact("none", status, config.origin)})
    facts: dict[str, Fact] = {}
    for key in dict.fromkeys(k for one in options for k in one):
        facts[key] = merge([one[key] for one in options if key in one], config.decided_by if len(options) == 2 else "")
    return facts


_PREQUANTIZED = (
    (r"(?i)-(unsloth-)?bnb-4bit$", "bnb_4bit"), (r"(?i)-bnb-8bit$", "bnb_8bit"),
    (r"(?i)[-_]GPTQ([-_].*)?$", "gptq"), (r"(?i)[-_]AWQ$", "awq"),
)  # fmt: skip
"""Names of checkpoints that are stored quantized."""


def _prequantized(facts: dict[str, Fact]) -> None:
    name = facts.get("model.id")
    method = facts.get("quantization.method")
    if name is None or not isinstance(name.value, str) or (method is not None and method.status is not Status.DEFAULT):
        return
    for pattern, quantized in _PREQUANTIZED:
        if re.search(pattern, name.value):
            facts["quantization.method"] = default(quantized, "the checkpoint's name", place(name))


def _mutations(model: Instance, facts: dict[str, Fact], versions: Versions) -> dict[str, Fact]:
    changed: dict[str, Fact] = {}
    cast = model.slots.get(".cast")
    quantized = facts.get("quantization.method")
    if isinstance(cast, Fact) and not (quantized is not None and quantized.known and quantized.value not in ("none", None)):
        changed["model.dtype"] = load_dtype(plain(cast), versions)
    if model.slots.get(".kbit") is not None:
        changed["model.dtype"] = unknown("prepare_model_for_kbit_training upcasts what is not quantized to float32")
        changed["model.norm_dtype"] = default("float32", f"{versions.note('peft')}: prepare_model_for_kbit_training")
    switch = model.slots.get(".checkpointing")
    if isinstance(switch, Fact):
        changed["checkpointing.enabled"] = plain(switch)
        reentrant = model.slots.get(".reentrant")
        if isinstance(reentrant, Fact) and not (switch.known and switch.value is False):
            changed["checkpointing.use_reentrant"] = plain(reentrant)
    offload = model.slots.get(".offload")
    if isinstance(offload, Fact):
        changed["checkpointing.offload"] = plain(offload)
    if ".input_grads" in model.slots:
        changed["checkpointing.input_grads"] = fixed(True, model.slots[".input_grads"].origin[0].span)
    elif ".bare_checkpointing" in model.slots:
        changed["checkpointing.input_grads"] = plain(model.slots[".bare_checkpointing"])
    if ".compiled" in model.slots:
        compiled = model.slots[".compiled"]
        changed["compile"] = fixed(True, compiled.span)
        if "mode" in compiled.kwargs:
            changed["compile.mode"] = plain(compiled.kwargs["mode"])
    return changed


def _adapter(model: Instance, versions: Versions, sites: list[Site]) -> dict[str, Fact]:
    config = model.slots.get(".adapter")
    if not isinstance(config, Fact):
        return {"adapter.method": default("none", "no adapter is added")}
    return adapter_of(config, versions, sites, model.slots.get(".adapter_call"))


def adapter_of(config: Fact, versions: Versions, sites: list[Site], call: Any = None) -> dict[str, Fact]:
    """`adapter.*` of a PEFT config that may be None, one of several, or not known."""
    config = _resumed(config)
    if config.status is Status.UNKNOWN:
        return {"adapter.method": unknown(config.reason, place(config))}
    options: list[dict[str, Fact]] = []
    for value in config.values:
        if not isinstance(value, Instance):
            status = config.status if config.known else Status.FIXED
            options.append({"adapter.method": Fact("none", status, config.origin)})
            continue
        sites.append(Site("peft", "python", value.call.span))
        given = {k: f for k, f in value.slots.items() if isinstance(f, Fact) and not str(k).startswith(".")}
        native = arguments(given)
        if ".model_config" in value.slots:
            facts = {k: f for k, f in model_config(native, versions).items() if k.startswith("adapter.")}
            if facts["adapter.method"].values == ("none",):
                options.append(facts)
                continue
        else:
            facts = adapter_facts(class_name(value), native, versions)
        method = facts["adapter.method"]
        if (
            method.known
            and method.status is Status.DEFAULT
            and config.status is not Status.DEFAULT
            and ".model_config" not in value.slots
        ):
            facts["adapter.method"] = Fact(method.value, Status.FIXED, (Origin(value.call.span), *method.origin))
        targets = value.slots.get("target_modules")
        if isinstance(targets, Fact) and not targets.known and _every_linear(targets):
            facts["adapter.target_modules"] = default("all-linear", "the script collects the linear layers", place(targets))
        if targets is None and value.call.open:
            facts["adapter.target_modules"] = unknown(value.call.open, value.call.span)
        options.append(facts)
    facts = {}
    for key in dict.fromkeys(k for one in options for k in one):
        facts[key] = merge([one[key] for one in options if key in one], config.decided_by if len(options) == 2 else "")
    return facts


def _every_linear(targets: Fact) -> bool:
    """Names gathered by `if isinstance(module, Linear)` over `model.named_modules()`, under no other condition (qlora's idiom)."""
    for value in Opaque("", (targets,)).ancestry():
        when = value.slots.get(".when") if isinstance(value, Array) else None
        test = when[0].value if when is not None and len(when) == 1 else None
        if isinstance(test, Opaque) and test.operation.endswith("isinstance") and len(test.parents) > 1:
            module, kind = test.parents[:2]
            looped = any(isinstance(v, Opaque) and v.operation == "call:named_modules" for v in Opaque("", (module,)).ancestry())
            names = [v.name for v in Opaque("", (kind,)).ancestry() if isinstance(v, Symbol)]
            if looped and names and all("Linear" in name.rpartition(".")[2] for name in names):
                return True
    return False


def _resumed(config: Fact) -> Fact:
    """An adapter that is loaded from a checkpoint where there is one, and new where not: a new one as written."""
    parts = config.value.parents if isinstance(config.value, Opaque) and config.value.operation == "merge" else ()
    new = [part for part in parts if part.known and isinstance(part.value, Instance)]
    loaded = [part for part in parts if part.status is Status.UNKNOWN and part.reason == LOADED_ADAPTER]
    return weaken(new[0]) if len(new) == 1 and len(new) + len(loaded) == len(parts) else config


PEFT_CONFIGS = frozenset(METHODS)
LOADED_ADAPTER = "the adapter is loaded from a checkpoint"


def part(owner: Fact, name: str, span: Span) -> Fact:
    """A part of a model (`model.model.layers`): not followed, but it leads back to the model."""
    return Fact(Opaque(f"part:{name}", (owner,)), Status.UNKNOWN, (Origin(span),), reason=f"`.{name}` of a model")
