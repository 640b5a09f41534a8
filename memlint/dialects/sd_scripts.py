"""kohya-ss sd-scripts: the flags of its training scripts, the same in TOML (`--config_file`), and its data sets' TOML.

Read at sd-scripts 48d368fa: `library/{train_util,config_util,deepspeed_utils}.py`, `train_network.py`, `sdxl_train.py`,
`flux_train.py`, `networks/lora.py`. Sections of the TOML have no meaning; a data set's batch size and resolution win over the flags.
"""

from __future__ import annotations

from collections.abc import Mapping

from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, number, rename, text
from memlint.facts import Fact, Problem, choices, default, fixed, unknown
from memlint.read.document import Document, MappingNode, flatten
from memlint.typed import Any

NAME = "sd_scripts"
FRAGMENT = False
INTERPOLATES = False
NOTE = "sd-scripts 48d368fa default"

_OPTIMIZERS = {
    "adamw": "adamw_torch", "adamw8bit": "adamw_bnb_8bit", "pagedadamw": "paged_adamw_32bit", "pagedadamw8bit": "paged_adamw_8bit",
    "pagedadamw32bit": "paged_adamw_32bit", "lion": "lion_32bit", "lion8bit": "lion_8bit", "pagedlion8bit": "paged_lion_8bit",
    "sgdnesterov": "sgd", "adafactor": "adafactor", "adamwschedulefree": "schedule_free_adamw",
    "sgdschedulefree": "schedule_free_sgd", "radamschedulefree": "schedule_free_radam",
}  # fmt: skip
_MODES = {"no": "fp32", "bf16": "bf16-mixed", "fp16": "fp16-mixed"}
_DTYPES = {"no": "float32", "bf16": "bfloat16", "fp16": "float16"}
_TRANSFORMERS = ("flux_", "lumina_", "hunyuan_", "anima_")
"""Scripts whose transformer is held in the mixed precision's dtype also when it is trained itself."""
_TRANSFORMER_FILES = frozenset({"ae", "t5xxl", "gemma2", "qwen3"})
"""Keys that only those scripts have (`sd3_*` shares `t5xxl` but states `clip_g`)."""


def recognise(document: Document) -> str | None:
    """A base checkpoint beside training keys of sd-scripts, at the top or in sections."""
    keys = {name for _, name in _leaves(document)}
    own = sorted(keys & {"train_batch_size", "network_module", "train_data_dir", "dataset_config", "optimizer_type", "network_dim",
                         "max_train_steps", "max_train_epochs", "cache_latents", "in_json", "full_bf16", "blocks_to_swap"})  # fmt: skip
    if "pretrained_model_name_or_path" not in keys or len(own) < 2 or "per_device_train_batch_size" in keys:
        return None
    return f"has pretrained_model_name_or_path, {own[0]} and {own[1]}"


def _leaves(document: Document) -> list[tuple[str, str]]:
    """(section, key) of every setting; what stands outside sections has the section ""."""
    found: list[tuple[str, str]] = []
    for entry in document.mapping.entries:
        if isinstance(entry.value, MappingNode):
            found += [(entry.key, inner.key) for inner in entry.value.entries]
        else:
            found.append(("", entry.key))
    return found


def unnested(native: Native) -> dict[str, Fact]:
    """The settings without their sections (`read_config_from_file`: "combine all sections into one")."""
    sections = {name for name, fact in native.items() if "." not in name and isinstance(fact.value, Mapping)}
    flat = {name: fact for name, fact in native.items() if name.partition(".")[0] not in sections}
    for section in sections:
        flat |= {name[len(section) + 1 :]: fact for name, fact in native.items() if name.startswith(section + ".")}
    return flat


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of the flags or the file. A launch adds the script's name as `sd_script` (`flux_train_network`)."""
    context = context or Context()
    native = unnested(native)

    def setting(name: str, otherwise: Any, convert: Any) -> Fact:
        fact = given(native, name)
        return derive(convert, fact) if fact is not None else default(otherwise, NOTE)

    mixed = given(native, "mixed_precision") or default("no", NOTE)
    whole = _whole(native)
    network = _is_network(native)
    result: Facts = {
        "framework.name": fixed(NAME),
        "objective": default("diffusion", NOTE),
        "precision": derive(lambda on, mode: f"{mode}-true" if on and mode != "no" else _MODES[str(mode)], whole, mixed),
        "model.dtype": _held(native, mixed, whole, network),
        "batch.gradient_accumulation_steps": setting("gradient_accumulation_steps", 1, integer),
        "optimizer.name": _optimizer(native),
        "optimizer.in_backward": setting("fused_backward_pass", False, boolean),
        "checkpointing.enabled": _checkpointed(native),
        "checkpointing.offload": setting("cpu_offload_checkpointing", False, boolean),
        "model.attention": _attention(native),
        "compile": setting("torch_compile", False, boolean),
        "quantization.method": default("none", NOTE),
        "reference_model": default("none", NOTE),
        "eval.enabled": default(False, NOTE),
    }
    result |= rename(native, {"model.id": ("pretrained_model_name_or_path", text),
                              "batch.text_tokens": ("t5xxl_max_token_length", integer)})  # fmt: skip
    result |= _data(native, context) | _network(native, network, result) | _deepspeed(native)
    context.note(_problems(native))
    return result


def _whole(native: Native) -> Fact:
    """`full_bf16` or `full_fp16`: everything that is trained is in that dtype."""
    off = default(False, NOTE)
    return derive(lambda a, b: boolean(a) or boolean(b), given(native, "full_bf16") or off, given(native, "full_fp16") or off)


def _script(native: Native) -> str:
    script = given(native, "sd_script")
    return str(script.value) if script is not None and script.known else ""


def _is_network(native: Native) -> bool:
    """Whether a network beside the model is trained, not the model itself."""
    return "_network" in _script(native) or given(native, "network_module", "network_dim") is not None


def _held(native: Native, mixed: Fact, whole: Fact, network: bool) -> Fact:
    """A frozen model is held in the mixed precision's dtype (or fp8); one that is trained in fp32 where its script keeps that."""
    eight = given(native, "fp8_base", "fp8_base_unet")
    if network and eight is not None and derive(boolean, eight).value is True:
        return eight.with_value("float8")
    script = _script(native)
    transformer = script.startswith(_TRANSFORMERS) or (bool(_TRANSFORMER_FILES & native.keys()) and "clip_g" not in native)
    if network or transformer:
        return derive(lambda mode: _DTYPES[str(mode)], mixed)
    return derive(lambda mode, on: _DTYPES[str(mode)] if on else "float32", mixed, whole)


def _checkpointed(native: Native) -> Fact:
    """`cpu_offload_checkpointing` switches checkpointing on (`flux_train.py`)."""
    asked, offload = given(native, "gradient_checkpointing"), given(native, "cpu_offload_checkpointing")
    off = default(False, NOTE)
    return derive(lambda a, b: boolean(a) or boolean(b), asked or off, offload or off)


def _attention(native: Native) -> Fact:
    for name, value in (("mem_eff_attn", "sdpa"), ("xformers", "xformers"), ("sdpa", "sdpa")):
        fact = given(native, name)
        if fact is not None and derive(boolean, fact).value is True:
            return fact.with_value(value)
    return default("eager", NOTE)


def _optimizer(native: Native) -> Fact:
    for switch, name in (("use_8bit_adam", "adamw_bnb_8bit"), ("use_lion_optimizer", "lion_32bit")):
        fact = given(native, switch)
        if fact is not None and derive(boolean, fact).value is True:
            return fact.with_value(name)
    kind = given(native, "optimizer_type")
    if kind is None or kind.value == "":
        return default("adamw_torch", NOTE)
    return derive(lambda name: _OPTIMIZERS.get(text(name).lower(), text(name).rpartition(".")[2].lower()), kind)


def _data(native: Native, context: Context) -> Facts:
    """Batch size and resolution: of the data sets' TOML (where each may have its own), else of the flags."""
    link = given(native, "dataset_config")
    document = context.follow(link)
    sets: list[Native] = [{}]
    if document is not None:
        found = flatten(document)
        general = {name[8:]: fact for name, fact in found.items() if name.startswith("general.")}
        count = len({name.split(".")[1] for name in found if name.startswith("datasets.")})
        own = [{name.split(".", 2)[2]: fact for name, fact in found.items() if name.startswith(f"datasets.{index}.")}
               for index in range(count)]  # fmt: skip
        sets = [{**general, **one} for one in own] or [general]
    elif link is not None:
        reason = "the data sets' configuration is not in the project"
        missing = unknown(reason, link.origin[0].span if link.origin else None)
        return {"batch.micro_batch_size": missing, "batch.image_size": missing}
    sizes = [given(one, "batch_size") or given(native, "train_batch_size") or default(1, NOTE) for one in sets]
    result: Facts = {"batch.micro_batch_size": _one_of([derive(integer, size) for size in sizes])}
    sides = [side for one in sets if (side := given(one, "resolution") or given(native, "resolution")) is not None]
    if sides and len(sides) == len(sets):
        pairs = _one_of([derive(_sides, side) for side in sides])
        square = derive(lambda pair: pair[0] if pair[0] == pair[1] else 1 / 0, pairs)
        if square.values:
            result["batch.image_size"] = square
        else:
            result |= {"batch.width": derive(lambda pair: pair[0], pairs), "batch.height": derive(lambda pair: pair[1], pairs)}
    return result


def _sides(value: Any) -> tuple[int, int]:
    """`512`, `"512,768"` (width, height) or a list of both."""
    parts = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, (list, tuple)) else [value]
    sides = [integer(part) for part in parts]
    return (sides[0], sides[0]) if len(sides) == 1 else (sides[0], sides[1])


def _one_of(facts_: list[Fact]) -> Fact:
    """What several data sets say: each batch comes from one of them."""
    first = facts_[0]
    if all(fact.known and fact.value == first.value for fact in facts_) or not all(fact.known for fact in facts_):
        return next((fact for fact in facts_ if not fact.known), first)
    span = first.origin[0].span if first.origin else None
    return choices((fact.value for fact in facts_), span, "the data sets differ")


def _network(native: Native, network: bool, result: Facts) -> Facts:
    if not network:
        return {"adapter.method": default("none", NOTE)}
    kind = given(native, "network_module") or default("networks.lora", NOTE)
    rank, alpha = given(native, "network_dim"), given(native, "network_alpha")
    dropout = given(native, "network_dropout")
    whole = str(result["precision"].value).endswith("-true")
    found: Facts = {
        "adapter.method": derive(_method, kind),
        "adapter.r": derive(integer, rank) if rank is not None else default(4, NOTE),
        "adapter.alpha": derive(number, alpha) if alpha is not None else default(1, NOTE),
        "adapter.dropout": derive(number, dropout) if dropout is not None else default(0.0, NOTE),
    }
    held = {"bf16": "bfloat16", "fp16": "float16"}.get(str(result["precision"].value)[:4], "float32")
    found["adapter.dtype"] = default(held if whole else "float32", NOTE)
    return found


def _method(module: Any) -> str:
    """`networks.lora_flux`, `lycoris.kohya`, `networks.oft`, `networks.dylora` -> the method."""
    name = text(module).rpartition(".")[2].lower()
    if text(module).startswith("lycoris"):
        return "lycoris"
    return next((method for method in ("oft", "dylora", "lora") if name.startswith(method)), name)


def _deepspeed(native: Native) -> Facts:
    """`library/deepspeed_utils.py`: stage 2 unless stated."""
    on = given(native, "deepspeed")
    if on is None or derive(boolean, on).value is not True:
        return {}
    stage = given(native, "zero_stage") or default(2, NOTE)
    result: Facts = {"parallel.strategy": derive(lambda _, number_: f"zero{integer(number_)}", on, stage)}
    for key, name in (
        ("parallel.offload_optimizer", "offload_optimizer_device"),
        ("parallel.offload_params", "offload_param_device"),
    ):
        device = given(native, name)
        result[key] = derive(text, device) if device is not None else default("none", NOTE)
    return result


def _problems(native: Native) -> tuple[Problem, ...]:
    """What the scripts assert."""
    found: list[Problem] = []
    mode = given(native, "mixed_precision") or default("no", NOTE)
    for name, needed in (("full_bf16", "bf16"), ("full_fp16", "fp16")):
        asked = given(native, name)
        span = asked.origin[0].span if asked is not None and asked.origin else None
        if (
            asked is not None
            and span is not None
            and derive(boolean, asked).value is True
            and mode.known
            and mode.value != needed
        ):
            found.append(Problem("full-precision-mismatch", f"{name} needs mixed_precision = {needed!r}", span))
    fused, steps = given(native, "fused_backward_pass"), given(native, "gradient_accumulation_steps")
    span = fused.origin[0].span if fused is not None and fused.origin else None
    if (
        fused is not None
        and span is not None
        and fused.value is True
        and steps is not None
        and steps.known
        and integer(steps.value) > 1
    ):
        message = "fused_backward_pass cannot accumulate gradients: set gradient_accumulation_steps to 1"
        found.append(Problem("optimizer-in-backward-with-accumulation", message, span))
    return tuple(found)


_WRITE = {
    "batch.micro_batch_size": "train_batch_size", "batch.gradient_accumulation_steps": "gradient_accumulation_steps",
    "checkpointing.enabled": "gradient_checkpointing", "checkpointing.offload": "cpu_offload_checkpointing",
    "adapter.r": "network_dim", "adapter.alpha": "network_alpha", "adapter.dropout": "network_dropout",
    "compile": "torch_compile", "optimizer.in_backward": "fused_backward_pass",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> setting; None where sd-scripts cannot say it."""
    if key in _WRITE:
        return [(_WRITE[key], value)]
    if key == "precision":
        mode = {"fp32": "no", "bf16-mixed": "bf16", "fp16-mixed": "fp16", "bf16-true": "bf16", "fp16-true": "fp16"}.get(
            str(value)
        )
        whole = [(f"full_{mode}", str(value).endswith("-true"))] if mode in ("bf16", "fp16") else []
        return [("mixed_precision", mode), *whole] if mode else None
    if key == "model.attention" and value in ("sdpa", "xformers"):
        return [(value, True)] if value == "xformers" else [("sdpa", True), ("xformers", False)]
    if key == "optimizer.name":
        named = {canonical: own for own, canonical in reversed(_OPTIMIZERS.items())}.get(str(value))
        spelled = {"adamw": "AdamW", "adamw8bit": "AdamW8bit", "pagedadamw": "PagedAdamW", "pagedadamw8bit": "PagedAdamW8bit",
                   "lion": "Lion", "lion8bit": "Lion8bit", "adafactor": "Adafactor"}.get(str(named), named)  # fmt: skip
        return [("optimizer_type", spelled)] if spelled else None
    return None
