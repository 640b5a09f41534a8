"""accelerate: its configuration YAML, the flags of `accelerate launch`, `Accelerator(...)` and its plugins.

Read in accelerate 1.15.0: `commands/launch.py`, `commands/config/config_args.py`, `utils/dataclasses.py`. The YAML alone is a
fragment of a run: the launcher's part.
"""

from __future__ import annotations

from memlint.dialects import megatron
from memlint.dialects.context import Context
from memlint.dialects.deepspeed import engine_facts, linked
from memlint.dialects.derive import Facts, Native, boolean, derive, given, integer, text
from memlint.dialects.fsdp import fsdp_facts, nested, unprefixed
from memlint.facts import Fact, Problem, default, fixed, unknown
from memlint.read.document import Document
from memlint.typed import Any
from memlint.versions import Versions

NAME = "accelerate"
FRAGMENT = True
INTERPOLATES = False

_TYPES = {
    "NO": "none", "MULTI_GPU": "ddp", "FSDP": "fsdp1", "DEEPSPEED": "zero2", "MEGATRON_LM": "megatron", "MULTI_XPU": "ddp",
    "MULTI_NPU": "ddp", "MULTI_MLU": "ddp", "MULTI_HPU": "ddp", "MULTI_MUSA": "ddp", "MULTI_SDAA": "ddp", "DATA_PARALLEL": "ddp",
}  # fmt: skip
_PRECISIONS = {"no": "fp32", "bf16": "bf16-mixed", "fp16": "fp16-mixed", "fp8": "bf16-mixed"}
_DEEPSPEED_FLAGS = ("zero_stage", "offload_optimizer_device", "offload_param_device", "deepspeed_config_file",
                    "gradient_accumulation_steps", "zero3_init_flag", "offload_optimizer_nvme_path", "zero3_save_16bit_model",
                    "deepspeed_moe_layer_cls_names")  # fmt: skip
_SIZES = {"tp_size": "parallel.tensor", "cp_size": "parallel.context", "sp_size": "parallel.context",
          "dp_shard_size": "parallel.data_shard"}  # fmt: skip


def recognise(document: Document) -> str | None:
    """The launcher's own keys: `distributed_type` with another of them."""
    keys = document.keys
    own = keys & {"compute_environment", "num_processes", "num_machines", "mixed_precision", "fsdp_config", "deepspeed_config",
                  "machine_rank", "main_training_function", "downcast_bf16", "parallelism_config"}  # fmt: skip
    if "distributed_type" in keys and own:
        return f"has distributed_type and {sorted(own)[0]}"
    if {"compute_environment", "num_processes"} <= keys and len(own) >= 3:
        return "has compute_environment and num_processes"
    return None


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of a configuration YAML."""
    return {"framework.name": fixed(NAME), **launcher_facts(native, context)}


def launcher_facts(native: Native, context: Context | None = None) -> Facts:
    """What the launcher decides, from its YAML or its flags (`--fsdp_offload_params` is `fsdp_offload_params` here).

    Keys: `parallel.*`, `precision`, and `checkpointing.enabled` where FSDP does the checkpointing. Only what is stated or follows
    from the launcher's defaults is there.
    """
    context = context or Context()
    note = context.versions.note(NAME) + " default"
    result = _world(native, note)
    precision = given(native, "mixed_precision")
    if precision is not None:
        result["precision"] = derive(lambda value: _PRECISIONS["no" if value is False else text(value).lower()], precision)
    kind = _type(native)
    if kind is not None:
        result["parallel.strategy"] = derive(lambda value: _TYPES[str(value).upper()], kind)
        if kind.value == "FSDP":
            result |= _fsdp(native, note)
        elif kind.value == "DEEPSPEED":
            result |= _deepspeed(native, result, context, note)
        elif kind.value == "MEGATRON_LM":
            result |= _megatron(native, note)
    stated = {
        name: given(native, f"parallelism_config.parallelism_config_{name}", f"parallelism_config_{name}") for name in _SIZES
    }
    result |= parallelism({name: fact for name, fact in stated.items() if fact is not None})
    steps = given(native, "gradient_accumulation_steps")
    if steps is not None and steps.value != "auto" and kind is not None and kind.value != "DEEPSPEED":
        result["batch.gradient_accumulation_steps"] = derive(integer, steps)
    backend = given(native, "dynamo_config.dynamo_backend", "dynamo_backend")
    if backend is not None:
        result["compile"] = derive(lambda value: text(value).lower() != "no", backend)
    regional = given(native, "dynamo_config.dynamo_use_regional_compilation", "dynamo_use_regional_compilation")
    if regional is not None:
        result["compile.scope"] = derive(lambda value: "blocks" if boolean(value) else "model", regional)
    return result


def parallelism(sizes: Native) -> Facts:
    """`ParallelismConfig`: `tp_size`, `cp_size`, `sp_size` (DeepSpeed's Ulysses) and `dp_shard_size`."""
    result: Facts = {}
    for name, key in _SIZES.items():
        size = given(sizes, name)
        if size is None or (key in result and size.value == 1):
            continue
        result[key] = derive(integer, size)
        if name == "sp_size":
            result["parallel.context_comm"] = derive(lambda _: "a2a", size)
    return result


def _type(native: Native) -> Fact | None:
    """The distribution type: stated, or implied by a flag."""
    stated = given(native, "distributed_type")
    for flag, kind in (("use_deepspeed", "DEEPSPEED"), ("use_fsdp", "FSDP"), ("use_megatron_lm", "MEGATRON_LM"),
                       ("multi_gpu", "MULTI_GPU")):  # fmt: skip
        fact = given(native, flag)
        if fact is not None and derive(boolean, fact).value is True:
            return fact.with_value(kind)
    return derive(lambda value: str(value).upper(), stated) if stated is not None else None


def _world(native: Native, note: str) -> Facts:
    """`num_processes` counts every GPU of every machine."""
    machines = given(native, "num_machines") or default(1, note)
    processes = given(native, "num_processes")
    result: Facts = {"parallel.nodes": derive(integer, machines)}
    kind = given(native, "distributed_type")
    if processes is not None and processes.value == -1:
        result["parallel.gpus"] = unknown("num_processes is -1: given at launch", processes.origin[0].span)
    elif processes is not None:
        result["parallel.gpus"] = derive(
            lambda count, nodes: max(integer(count) // max(integer(nodes), 1), 1), processes, machines
        )
    elif kind is not None and str(kind.value).upper() == "NO":
        result["parallel.gpus"] = default(1, note)
    return result


def _fsdp(native: Native, note: str) -> Facts:
    options = unprefixed(nested(native, "fsdp_config"))
    options |= unprefixed({name: fact for name, fact in native.items() if name.startswith("fsdp_") and "." not in name})
    version = given(options, "version") or default(1, note)
    # `accelerate launch` itself has `--fsdp_cpu_ram_efficient_loading` true (commands/launch.py)
    return fsdp_facts(options, version=derive(integer, version), note=note, defaults={"cpu_ram_efficient_loading": True})


_MEGATRON = {"tp_degree": "tensor_model_parallel_size", "pp_degree": "pipeline_model_parallel_size",
             "sequence_parallelism": "sequence_parallel", "context_parallel_size": "context_parallel_size",
             "expert_model_parallel_size": "expert_model_parallel_size"}  # fmt: skip
"""accelerate's names for Megatron-Core's settings; the others are the same."""


def _megatron(native: Native, note: str) -> Facts:
    """`megatron_lm_config` (`utils/launch.py`, `MegatronLMPlugin`)."""
    block = {**nested(native, "megatron_lm_config"), **native}
    options = {name.removeprefix("megatron_lm_"): fact for name, fact in block.items() if name.startswith("megatron_lm_")}
    settings = {_MEGATRON.get(name, name): fact for name, fact in options.items() if "." not in name}
    core = megatron.core(settings, note, assume=False)
    kept = ("parallel.", "checkpointing.", "optimizer.")
    result = {key: fact for key, fact in core.items() if key.startswith(kept) and key != "parallel.strategy"}
    steps = given(options, "num_micro_batches")
    if steps is not None:
        result["batch.gradient_accumulation_steps"] = derive(integer, steps)
    return result


def _deepspeed(native: Native, result: Facts, context: Context, note: str) -> Facts:
    options = nested(native, "deepspeed_config")
    options |= {name: native[name] for name in _DEEPSPEED_FLAGS if name in native}
    file = given(options, "deepspeed_config_file")
    if file is not None and file.value != "none":
        training = {key: fact for key, fact in result.items() if key == "batch.micro_batch_size"}
        found = linked(file, training, context)
        context.note(_contradictions(_repeated(options, result, context.versions), found))
        return found | _zero3(options)
    engine = {"zero_optimization.stage": given(options, "zero_stage") or default(2, note)}
    for what in ("optimizer", "param"):
        device = given(options, f"offload_{what}_device")
        engine[f"zero_optimization.offload_{what}.device"] = device or default("none", note)
    found = engine_facts(engine, context.versions)
    added = {key: fact for key, fact in found.items() if key.startswith("parallel.")} | _zero3(options)
    steps = given(options, "gradient_accumulation_steps")
    if steps is not None and steps.value != "auto":
        added["batch.gradient_accumulation_steps"] = derive(integer, steps)
    return added


_COMPARED = {
    "precision": "the precision", "parallel.strategy": "the ZeRO stage", "parallel.offload_optimizer": "the optimizer's place",
    "parallel.offload_params": "the parameters' place", "batch.gradient_accumulation_steps": "the number of micro-batches a step",
}  # fmt: skip


def _repeated(options: Native, result: Facts, versions: Versions) -> Facts:
    """What the launcher's own settings say again beside a DeepSpeed file."""
    names = {"zero_stage": "zero_optimization.stage", "offload_optimizer_device": "zero_optimization.offload_optimizer.device",
             "offload_param_device": "zero_optimization.offload_param.device",
             "gradient_accumulation_steps": "gradient_accumulation_steps"}  # fmt: skip
    stated = {native: options[name] for name, native in names.items() if name in options}
    facts = engine_facts(stated, versions) if "zero_optimization.stage" in stated else {}
    return facts | {"precision": result["precision"]} if "precision" in result else facts


def _contradictions(own: Facts, file: Facts) -> tuple[Problem, ...]:
    """Settings that both state, and differently (`utils/dataclasses.py`, `_deepspeed_config_checks`, which refuses them all)."""
    problems = []
    for key, name in _COMPARED.items():
        here, there = own.get(key), file.get(key)
        if here is None or there is None or not (here.known and there.known and here.origin and there.origin):
            continue
        ours, theirs = here.origin[0].span, there.origin[0].span
        same = str(here.value)[:4] == str(there.value)[:4] if key == "precision" else here.value == there.value
        if same or ours is None or theirs is None or ours == theirs:
            continue
        message = f"{name} is {here.value} in the accelerate configuration and {there.value} in the DeepSpeed file: accelerate refuses both"
        problems.append(Problem("contradiction", message, ours, (theirs,)))
    return tuple(problems)


def _zero3(options: Native) -> Facts:
    """What only matters to stage 3: sharding while models are built, expert blocks as units, whole weights in checkpoints."""
    result: Facts = {}
    init = given(options, "zero3_init_flag")
    if init is not None:
        result["parallel.zero3_init"] = derive(boolean, init)
    leaves = given(options, "deepspeed_moe_layer_cls_names")
    if leaves is not None:
        result["parallel.zero3_leaf_modules"] = derive(bool, leaves)
    saved = given(options, "zero3_save_16bit_model")
    if saved is not None:
        result["parallel.gather_weights_on_save"] = derive(boolean, saved)
    return result


def accelerator_facts(native: Native, versions: Versions | None = None) -> Facts:
    """`Accelerator(...)`: autocast and accumulation. Plugins are objects: see `plugin_facts`. Without `mixed_precision` the
    launcher's decides, then none."""
    note = (versions or Versions()).note(NAME) + " default"
    result: Facts = {}
    precision = given(native, "mixed_precision")
    if precision is not None:
        result["precision"] = derive(lambda value: _PRECISIONS[text(value).lower()], precision)
    else:
        result["precision"] = default("fp32", note)
    steps = given(native, "gradient_accumulation_steps")
    result["batch.gradient_accumulation_steps"] = derive(integer, steps) if steps is not None else default(1, note)
    return result


def plugin_facts(class_name: str, native: Native, versions: Versions | None = None) -> Facts:
    """`FullyShardedDataParallelPlugin(...)` or `DeepSpeedPlugin(...)` given to an `Accelerator`."""
    versions = versions or Versions()
    note = versions.note(NAME) + f" default of {class_name}"
    if class_name == "DeepSpeedPlugin":
        return _deepspeed(native, {}, Context(versions), note)
    if class_name in ("FullyShardedDataParallelPlugin", "TorchFullyShardedDataParallelPlugin"):
        options = unprefixed(native)
        return fsdp_facts(options, version=derive(integer, given(options, "version") or default(1, note)), note=note)
    return {}


_WRITE = {
    "parallel.offload_params": "fsdp_config.fsdp_offload_params",
    "checkpointing.enabled": "fsdp_config.fsdp_activation_checkpointing",
    "parallel.reshard_after_forward": "fsdp_config.fsdp_reshard_after_forward",
    "parallel.gather_weights_on_save": "deepspeed_config.zero3_save_16bit_model",
    "parallel.gpus": "num_processes", "parallel.nodes": "num_machines",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> key of the YAML; None where it cannot say it."""
    if key == "precision":
        name = {"bf16-mixed": "bf16", "fp16-mixed": "fp16", "fp32": "no"}.get(str(value))
        return [("mixed_precision", name)] if name else None
    if key in ("parallel.offload_params", "parallel.offload_optimizer") and value in ("cpu", "none"):
        return [(_WRITE["parallel.offload_params"], value == "cpu")]
    if key == "parallel.strategy" and str(value).startswith("zero"):
        return [("deepspeed_config.zero_stage", int(str(value)[-1]))]
    if key == "parallel.strategy" and value in ("fsdp1", "fsdp2"):
        return [("fsdp_config.fsdp_version", int(str(value)[-1]))]
    if key == "parallel.fsdp_sharding":
        return [("fsdp_config.fsdp_sharding_strategy", str(value).upper())]
    if key == "parallel.wrap_policy" and value == "transformer":
        return [("fsdp_config.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP")]
    if key == "checkpointing.enabled" and value is not True:
        return None
    return [(_WRITE[key], value)] if key in _WRITE else None


def alternatives(key: str, value: Any) -> list[list[tuple[str, Any]]]:
    """The same of a DeepSpeed launch, and of FSDP 2, which has no sharding strategy."""
    if key in ("parallel.offload_params", "parallel.offload_optimizer") and value in ("cpu", "none"):
        what = "param" if key == "parallel.offload_params" else "optimizer"
        return [[(f"deepspeed_config.offload_{what}_device", value)]]
    if key == "parallel.fsdp_sharding" and value in ("full_shard", "shard_grad_op"):
        return [[("fsdp_config.fsdp_reshard_after_forward", value == "full_shard")]]
    if key == "batch.gradient_accumulation_steps":
        return [[("deepspeed_config.gradient_accumulation_steps", value)]]
    return []
