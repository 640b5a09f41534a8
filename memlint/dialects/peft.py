"""PEFT configuration classes to `adapter.*` facts, as read in peft 0.21.2 (`tuners/*/config.py`).

LoRA's defaults are data by version (`memlint/defaults/peft.json`).
"""

from __future__ import annotations

from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, names, number
from memlint.dialects.hf_arguments import Arguments
from memlint.facts import Fact, default, unknown
from memlint.typed import Any
from memlint.versions import Versions

METHODS = {
    "LoraConfig": "lora", "AdaLoraConfig": "adalora", "IA3Config": "ia3", "LoHaConfig": "loha", "LoKrConfig": "lokr",
    "OFTConfig": "oft", "BOFTConfig": "boft", "VeraConfig": "vera", "FourierFTConfig": "fourierft", "LNTuningConfig": "ln_tuning",
    "HRAConfig": "hra", "VBLoRAConfig": "vblora", "BoneConfig": "bone", "MissConfig": "miss", "RandLoraConfig": "randlora",
    "C3AConfig": "c3a", "ShiraConfig": "shira", "RoadConfig": "road", "XLoraConfig": "xlora", "PolyConfig": "poly",
    "PromptTuningConfig": "prompt_tuning", "PrefixTuningConfig": "prefix_tuning", "PromptEncoderConfig": "p_tuning",
    "MultitaskPromptTuningConfig": "multitask_prompt_tuning", "CPTConfig": "cpt", "AdaptionPromptConfig": "adaption_prompt",
    "TrainableTokensConfig": "trainable_tokens", "WaveFTConfig": "waveft", "DeloraConfig": "delora", "OSFConfig": "osf",
    "GraloraConfig": "gralora",
}  # fmt: skip
"""Configuration class -> canonical method."""

_PROMPTS = {"prompt_tuning", "prefix_tuning", "p_tuning", "multitask_prompt_tuning", "cpt"}
_RANKS = {"lora": "r", "adalora": "init_r", "vera": "r", "oft": "r", "hra": "r", "bone": "r", "miss": "r", "shira": "r",
          "randlora": "r", "loha": "r", "lokr": "r", "vblora": "r", "delora": "r", "gralora": "r", "hira": "r", "glora": "r",
          "peanut": "r", "deft": "r", "psoft": "r", "pvera": "r", "tinylora": "r", "unilora": "r", "lily": "r", "adamss": "r"}  # fmt: skip
_RANK_DEFAULTS = {"adalora": 12, "vera": 256, "oft": 0, "hra": 8, "bone": 64, "miss": 64, "shira": 32, "randlora": 32,
                  "loha": 8, "lokr": 8, "vblora": 4, "delora": 8, "gralora": 32, "hira": 32, "glora": 8, "peanut": 32, "deft": 8,
                  "psoft": 32, "pvera": 256, "tinylora": 2, "unilora": 4, "lily": 32, "adamss": 100}  # fmt: skip
_SEEN = {"r", "init_r", "lora_alpha", "alpha", "lora_dropout", "target_modules", "modules_to_save", "use_dora", "bias",
         "task_type", "inference_mode", "base_model_name_or_path", "peft_type", "revision", "num_virtual_tokens"}  # fmt: skip


def adapter_facts(class_name: str, native: Native, versions: Versions | None = None) -> Facts:
    """`adapter.*` of a PEFT configuration.

    `class_name` is the configuration class, `native` its arguments. `adapter.target_modules` is unknown when left to PEFT,
    which then picks them by the model's type. `adapter.dtype` is PEFT's own: adapters are upcast to float32 unless
    `autocast_adapter_dtype=False` (`peft.get_peft_model`); trainers that cast them back say so themselves.
    """
    versions = versions or Versions()
    arguments = Arguments(native, versions, "peft", "LoraConfig")
    method = METHODS.get(class_name, class_name.removesuffix("Config").lower())
    dora = given(native, "use_dora")
    facts: Facts = {"adapter.method": default(method, f"peft.{class_name}")}
    if method == "lora" and dora is not None:
        facts["adapter.method"] = derive(lambda on: "dora" if boolean(on) else "lora", dora)
    if method in ("lora", "adalora"):
        facts |= _lora(arguments, method)
    elif method in _RANKS:
        rank = given(native, _RANKS[method])
        facts["adapter.r"] = derive(integer, rank) if rank else default(_RANK_DEFAULTS[method], _note(versions, class_name))
        facts["adapter.target_modules"] = target_modules(native)
    elif method in _PROMPTS:
        length = given(native, "num_virtual_tokens")
        if length is not None:
            facts["adapter.prompt_length"] = derive(integer, length)
    else:
        facts["adapter.target_modules"] = target_modules(native)
    saved = given(native, "modules_to_save")
    if saved is not None:
        facts["adapter.modules_to_save"] = derive(names, saved)
    rest = {name: fact.value for name, fact in native.items() if name not in _SEEN and "." not in name and _matters(fact)}
    if rest:
        facts["adapter.config"] = default(rest, f"peft.{class_name}")
    return facts


def _matters(fact: Fact) -> bool:
    return fact.known and fact.value not in (None, [], {}) and isinstance(fact.value, (bool, int, float, str, list, dict))


def _note(versions: Versions, class_name: str) -> str:
    return f"{versions.note('peft')} default of {class_name}"


def _lora(arguments: Arguments, method: str) -> Facts:
    note = _note(arguments.versions, arguments.class_name)
    rank = arguments.given("init_r", "r") if method == "adalora" else arguments("r")
    return {
        "adapter.r": derive(integer, rank) if rank is not None else default(12, note),
        "adapter.alpha": derive(number, arguments("lora_alpha")),
        "adapter.dropout": derive(number, arguments("lora_dropout")),
        "adapter.target_modules": target_modules(arguments.native),
        "adapter.dtype": default("float32", f"{arguments.versions.note('peft')}: autocast_adapter_dtype"),
    }


def target_modules(native: Native, name: str = "target_modules") -> Fact:
    """`target_modules` as a list of names, a regex, or `all-linear`; unknown when PEFT picks them by the model's type."""
    fact = given(native, name)
    if fact is None:
        return unknown("target_modules is not given: PEFT picks them by the model's type")
    return derive(_targets, fact)


def _targets(value: Any) -> Any:
    listed = names(sorted(value) if isinstance(value, (set, frozenset)) else value)
    if listed in ("all-linear", "all_linear") or listed == ["all-linear"]:
        return "all-linear"
    return listed


_WRITE = {
    "adapter.r": "r", "adapter.alpha": "lora_alpha", "adapter.dropout": "lora_dropout",
    "adapter.target_modules": "target_modules", "adapter.modules_to_save": "modules_to_save",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> argument of `LoraConfig`; None where it cannot say it."""
    if key == "adapter.method" and value in ("lora", "dora"):
        return [("use_dora", value == "dora")]
    return [(_WRITE[key], value)] if key in _WRITE else None
