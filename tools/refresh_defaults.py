"""Rewrites `memlint/defaults/*.json` from library sources, without importing them.

    python tools/refresh_defaults.py                     # the libraries installed beside this Python
    python tools/refresh_defaults.py DIR                 # every transformers/trl/peft/accelerate wheel in DIR, oldest first
    python tools/refresh_defaults.py --check             # exit 1 if an installed library differs from the recorded data
    python tools/refresh_defaults.py --keys litgpt FILE...   # the keys that a framework accepts, into keys.json
    python tools/refresh_defaults.py --keys verl_ppo:data FILE.yaml   # those of a block

Defaults are the literal defaults of the fields of configuration classes, read from the abstract syntax tree. A field's history
is a list of changes: `[since, default]`, where `since` is the first version *read* that has the default and `null` as a pair
(`[since]` alone) means that the field is not there from that version on. What a class makes of a default later
(`__post_init__`) is code, not data: see `memlint/dialects/hf_arguments.py` and `trl.py`.
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent.parent / "memlint" / "defaults"

TRAINING = (
    "per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps bf16 fp16 bf16_full_eval "
    "fp16_full_eval gradient_checkpointing activation_checkpointing gradient_checkpointing_kwargs "
    "activation_checkpointing_kwargs optim optim_args eval_strategy evaluation_strategy do_eval do_train "
    "prediction_loss_only eval_accumulation_steps auto_find_batch_size use_liger_kernel torch_compile fsdp "
    "fsdp_config deepspeed group_by_length train_sampling_strategy use_cpu no_cuda tf32 torch_empty_cache_steps "
    "ddp_find_unused_parameters half_precision_backend dataloader_pin_memory use_cache "
)

TRL = (
    "max_length max_seq_length max_prompt_length max_completion_length max_target_length packing packing_strategy "
    "padding_free eval_packing dataset_text_field loss_type beta precompute_ref_log_probs reference_free "
    "num_generations num_iterations use_vllm vllm_mode vllm_gpu_memory_utilization vllm_tensor_parallel_size "
    "activation_offloading use_logits_to_keep model_init_kwargs pad_to_multiple_of truncation_mode use_peft "
    "cast_lm_head_to_fp32 mini_batch_size ppo_epochs response_length local_rollout_forward_batch_size "
    "reward_model_path lmbda max_new_tokens force_use_ref_model sync_ref_model vllm_enable_sleep_mode "
    "disable_dropout "
)

MODEL = (
    "model_name_or_path dtype torch_dtype attn_implementation use_peft lora_r lora_alpha lora_dropout "
    "lora_target_modules lora_target_parameters lora_modules_to_save lora_task_type use_rslora use_dora "
    "load_in_8bit load_in_4bit bnb_4bit_quant_type use_bnb_nested_quant bnb_4bit_quant_storage "
)

LORA = (
    "r target_modules lora_alpha lora_dropout modules_to_save use_dora use_rslora init_lora_weights "
    "layers_to_transform rank_pattern bias trainable_token_indices target_parameters "
)

BNB = (
    "load_in_8bit load_in_4bit llm_int8_skip_modules bnb_4bit_compute_dtype bnb_4bit_quant_type "
    "bnb_4bit_use_double_quant bnb_4bit_quant_storage "
)

FSDP = (
    "sharding_strategy reshard_after_forward backward_prefetch auto_wrap_policy cpu_offload use_orig_params "
    "limit_all_gathers activation_checkpointing fsdp_version cpu_ram_efficient_loading min_num_params "
    "forward_prefetch sync_module_states "
)

DEEPSPEED_PLUGIN = (
    "zero_stage offload_optimizer_device offload_param_device gradient_accumulation_steps gradient_clipping "
    "zero3_init_flag hf_ds_config is_train_batch_min "
)

TRAINERS = "_Base Base OnPolicy SFT DPO KTO ORPO CPO BCO Reward PRM GRPO RLOO PPO PPOv2 GKD OnlineDPO XPO NashMD"

CLASSES: dict[str, dict[str, str]] = {
    "transformers": {"TrainingArguments": TRAINING, "Seq2SeqTrainingArguments": TRAINING, "BitsAndBytesConfig": BNB},
    "trl": {**{f"{name}Config": TRAINING + TRL for name in TRAINERS.split()}, "ModelConfig": MODEL},
    "peft": {"LoraConfig": LORA},
    "accelerate": {"FullyShardedDataParallelPlugin": FSDP, "DeepSpeedPlugin": DEEPSPEED_PLUGIN},
}
"""Library -> class -> its recorded fields, separated by spaces."""


def sources(place: Path, package: str) -> Iterator[tuple[str, str]]:
    """(name, text) of the package's Python files that can hold a configuration class."""
    wanted = re.compile(rf"{package}/(trainer|training_args|experimental|utils/(dataclasses|quantization)|tuners/lora/config)")
    if place.suffix == ".whl":
        with zipfile.ZipFile(place) as wheel:
            for name in sorted(wheel.namelist()):
                if name.endswith(".py") and wanted.match(name):
                    yield name, wheel.read(name).decode("utf-8")
        return
    for file in sorted((place / package).rglob("*.py")):
        name = file.relative_to(place).as_posix()
        if wanted.match(name):
            yield name, file.read_text(encoding="utf-8")


def literal(node: ast.expr | None, strings: dict[str, str]) -> Any:
    """The value of a default expression; `"?"` with its source text where it is not a literal."""
    if node is None:
        return "?required"
    if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "field":
        for keyword in node.keywords:
            if keyword.arg == "default":
                return literal(keyword.value, strings)
            if keyword.arg == "default_factory":
                value = keyword.value
                if isinstance(value, ast.Lambda):
                    return literal(value.body, strings)
                return {"list": [], "dict": {}}.get(ast.unparse(value), "?" + ast.unparse(value))
        return "?required"
    try:
        return ast.literal_eval(node)
    except ValueError:
        text = ast.unparse(node)
        return strings.get(text, "?" + text)


def class_fields(text: str, names: set[str]) -> Iterator[tuple[str, list[str], dict[str, Any]]]:
    """(class, its bases, {field: default}) of each wanted class of a module; a plain class gives its `__init__` defaults."""
    tree = ast.parse(text)
    strings: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str):
                    for target in item.targets:
                        strings[f"{node.name}.{ast.unparse(target)}"] = item.value.value
                        strings[f"{node.name}.{ast.unparse(target)}.value"] = item.value.value
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or node.name not in names:
            continue
        fields: dict[str, Any] = {}
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                fields[item.target.id] = literal(item.value, strings)
            elif isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant):
                # `default_optim = "adamw_torch"` of TrainingArguments: the value of `field(default=default_optim)`
                strings |= {ast.unparse(target): item.value.value for target in item.targets}
            elif isinstance(item, ast.FunctionDef) and item.name == "__init__" and not fields:
                arguments = item.args.args[-len(item.args.defaults) :] if item.args.defaults else []
                for argument, value in zip(arguments, item.args.defaults, strict=True):
                    fields[argument.arg] = literal(value, strings)
        yield node.name, [ast.unparse(base).split(".")[-1] for base in node.bases], fields


def read_release(place: Path, package: str) -> dict[str, dict[str, Any]]:
    """{class: {"bases": [...], field: default}} of one release."""
    wanted = CLASSES[package]
    found: dict[str, dict[str, Any]] = {}
    for _, text in sources(place, package):
        if not any(f"class {name}" in text for name in wanted):
            continue
        for name, bases, fields in class_fields(text, set(wanted)):
            kept = {field: value for field, value in fields.items() if field in wanted[name].split()}
            # a class that moved leaves an empty shim behind: the one with the fields is the class
            if name not in found or len(kept) >= len(found[name]):
                found[name] = {"bases": [base for base in bases if base.endswith(("Config", "Arguments"))], **kept}
    return found


def accepted(files: list[Path], block: str = "") -> list[str]:
    """The names of all dataclass and model fields, parameters of `setup` and `__init__`, parsed flags and settings that a recipe asks its
    configuration for (`cfg.x`, `cfg.get("x")`) in some Python files; of a YAML file, the keys of a block.
    """
    names: set[str] = set()
    for file in files:
        if file.suffix == ".yaml":
            names |= keys_of(file, block)
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names |= set(asked(node))
            if isinstance(node, ast.ClassDef):
                names |= {
                    item.target.id for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
                }
            elif isinstance(node, ast.FunctionDef) and node.name in ("setup", "__init__"):
                names |= {argument.arg for argument in node.args.args + node.args.kwonlyargs}
    return sorted(names)


def keys_of(file: Path, block: str) -> set[str]:
    """The keys of a YAML file's mapping below a dotted path; none where it has no such mapping."""
    import yaml  # only for configurations

    value = yaml.safe_load(file.read_text(encoding="utf-8"))
    for part in block.split(".") if block else ():
        value = value.get(part) if isinstance(value, dict) else None
    return {str(key) for key in value} if isinstance(value, dict) else set()


def asked(node: ast.AST) -> Iterator[str]:
    """The setting that an expression asks for: a flag that a parser has, or a part of a recipe's `cfg`."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "cfg":
        yield node.attr
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    words = [argument.value for argument in node.args if isinstance(argument, ast.Constant) and isinstance(argument.value, str)]
    if node.func.attr == "add_argument":
        yield from (word.lstrip("-").replace("-", "_") for word in words)
    elif node.func.attr == "get" and isinstance(node.func.value, ast.Name) and node.func.value.id == "cfg":
        yield from words[:1]


def version_key(version: str) -> tuple[int, ...]:
    """The first three numbers of a version, for sorting."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def merge(releases: dict[str, dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """The history of every field over the releases, oldest first."""
    history: dict[str, dict[str, list[list[Any]]]] = {}
    for version in sorted(releases, key=version_key):
        release = releases[version]
        for name in sorted({*history, *release}):
            fields = history.setdefault(name, {})
            now = release.get(name, {})
            for field in sorted({*fields, *now}):
                changes = fields.setdefault(field, [])
                change = [version, now[field]] if field in now else [version]
                if (changes and changes[-1][1:] != change[1:]) or (not changes and len(change) == 2):
                    changes.append(change)
    return history


def unmerge(data: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """The recorded releases again, so that a new one can be added."""
    releases: dict[str, dict[str, dict[str, Any]]] = {version: {} for version in data["read"]}
    for version in data["read"]:
        for name, fields in data["classes"].items():
            for field, changes in fields.items():
                current = [change for change in changes if version_key(change[0]) <= version_key(version)]
                if current and len(current[-1]) == 2:
                    releases[version].setdefault(name, {})[field] = current[-1][1]
    return releases


def dump(data: dict[str, Any]) -> str:
    """JSON with one line a field, so that a diff reads well."""
    lines = ["{", f' "library": {json.dumps(data["library"])},', f' "read": {json.dumps(data["read"])},', ' "classes": {']
    names = list(data["classes"])
    for index, name in enumerate(names):
        fields = data["classes"][name]
        body = ",\n".join(f"   {json.dumps(field)}: {json.dumps(changes)}" for field, changes in fields.items())
        lines.append(f"  {json.dumps(name)}: {{\n{body}\n  }}" + ("," if index < len(names) - 1 else ""))
    return "\n".join([*lines, " }", "}", ""])


def main() -> int:
    """Write the histories, check them, or write the key lists, as the options say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", nargs="?", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--keys", nargs="+", metavar=("DIALECT", "FILE"))
    options = parser.parse_args()
    if options.keys:
        file = DATA / "keys.json"
        known = json.loads(file.read_text()) if file.exists() else {}
        name, *files = options.keys
        known[name] = accepted([Path(file) for file in files], name.partition(":")[2])
        lines = (f" {json.dumps(name)}: {json.dumps(known[name])}" for name in sorted(known))
        file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        return 0
    differ = False
    for package in CLASSES:
        file = DATA / f"{package}.json"
        releases = unmerge(json.loads(file.read_text())) if file.exists() else {}
        before = dump({"library": package, "read": sorted(releases, key=version_key), "classes": merge(releases)})
        if options.wheels:
            for wheel in options.wheels.glob(f"{package}-*.whl"):
                releases[wheel.name.split("-")[1]] = read_release(wheel, package)
        else:
            try:
                distribution = importlib.metadata.distribution(package)
            except importlib.metadata.PackageNotFoundError:
                continue
            releases[distribution.version] = read_release(Path(str(distribution.locate_file(""))), package)
        after = dump({"library": package, "read": sorted(releases, key=version_key), "classes": merge(releases)})
        if options.check:
            differ |= after != before
            print(f"{package}: {'differs' if after != before else 'as recorded'}")
        else:
            file.write_text(after)
            print(f"{package}: {len(releases)} releases, {file.stat().st_size} bytes")
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())
