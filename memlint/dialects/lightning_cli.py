"""Lightning CLI YAML: `trainer`, `model` and `data` as `python main.py fit --config` reads them.

Read at pytorch-lightning 7f0c3436cd: `pytorch/trainer/trainer.py`, `fabric/{connector,strategies}`. The trainer's settings are
Lightning's own; what the module and the data module make of theirs is in their code, so those are only taken by their usual names.
"""

from __future__ import annotations

from memlint.dialects.context import Context
from memlint.dialects.derive import Facts, Native, derive, given, integer, soften, text
from memlint.facts import Fact, default, fixed, unknown
from memlint.facts.keys import normalise
from memlint.read.document import Document
from memlint.typed import Any

NAME = "lightning_cli"
FRAGMENT = False
INTERPOLATES = False  # only with `parser_kwargs={"parser_mode": "omegaconf"}`
NOTE = "lightning 2.6 default"
NAMED = "by its usual name; what the class does with it is in its code"

_TRAINER = frozenset({"accelerator", "devices", "max_epochs", "max_steps", "precision", "strategy", "accumulate_grad_batches", "num_nodes",
                      "gradient_clip_val", "limit_val_batches", "check_val_every_n_epoch", "val_check_interval",
                      "log_every_n_steps", "callbacks", "logger", "enable_checkpointing", "num_sanity_val_steps"})  # fmt: skip
_STRATEGIES = {
    "ddp": "ddp", "ddp_spawn": "ddp", "ddp_notebook": "ddp", "ddp_fork": "ddp", "fsdp": "fsdp1", "deepspeed": "zero2",
    "FSDPStrategy": "fsdp1", "DDPStrategy": "ddp", "DeepSpeedStrategy": "zero2", "ModelParallelStrategy": "fsdp2",
    "SingleDeviceStrategy": "none",
}  # fmt: skip
"""Names and classes; `deepspeed` and `DeepSpeedStrategy` are stage 2 unless told otherwise (`strategies/deepspeed.py`)."""
_MODELS = ("model_name_or_path", "pretrained_model_name_or_path", "model_name", "model_id", "pretrained_model", "model_path",
           "hf_model_name", "checkpoint")  # fmt: skip
_BATCHES = ("batch_size", "train_batch_size", "per_device_batch_size", "micro_batch_size")
_LENGTHS = ("max_seq_length", "max_length", "max_seq_len", "seq_len", "block_size", "sequence_length")


def recognise(document: Document) -> str | None:
    """`trainer` with Lightning's settings, and classes or a seed as LightningCLI writes them."""
    keys = [name for name in sorted(_TRAINER) if document.at(f"trainer.{name}") is not None]
    classes = next((f"{part}.class_path" for part in ("model", "data") if document.at(f"{part}.class_path") is not None), None)
    if classes is None and "seed_everything" in document.keys and {"model", "data"} & document.keys:
        classes = "seed_everything"
    if len(keys) < 2 or classes is None:
        return None
    return f"has {classes}, trainer.{keys[0]} and trainer.{keys[1]}"


def facts(native: Native, context: Context | None = None) -> Facts:
    """Canonical facts of a Lightning CLI configuration."""
    precision = given(native, "trainer.precision") or default("32-true", NOTE)
    steps, nodes = given(native, "trainer.accumulate_grad_batches"), given(native, "trainer.num_nodes")
    mode = derive(lambda value: normalise("precision", str(value)), precision)
    result: Facts = {
        "framework.name": fixed("lightning"),
        "precision": mode,
        "batch.gradient_accumulation_steps": derive(integer, steps) if steps is not None else default(1, NOTE),
        "parallel.nodes": derive(integer, nodes) if nodes is not None else default(1, NOTE),
        "model.id": _named(native, "model", _MODELS) or unknown("model.class_path decides the model"),
        "batch.micro_batch_size": _named(native, "data", _BATCHES) or unknown("data.class_path decides the batch size"),
        "checkpointing.enabled": default(False, "nothing switches checkpointing on"),
    }
    if str(mode.value) in ("bf16-true", "fp16-true"):
        dtype = derive(lambda name: "bfloat16" if name == "bf16-true" else "float16", mode)
        result["model.dtype"] = soften(dtype, "lightning converts the module")
    length = _named(native, "data", _LENGTHS) or _named(native, "model", _LENGTHS)
    if length is not None:
        result["batch.sequence_length"] = length
    return result | _devices(native) | _strategy(native) | _evaluation(native)


def _named(native: Native, part: str, names: tuple[str, ...]) -> Fact | None:
    """A setting of the module or the data module under one of its usual names."""
    fact = given(native, *(f"{part}.{level}{name}" for name in names for level in ("init_args.", "")))
    return soften(fact, NAMED) if fact is not None and isinstance(fact.value, (str, int)) else None


def _devices(native: Native) -> Facts:
    devices = given(native, "trainer.devices") or default("auto", NOTE)
    if devices.known and devices.value in ("auto", -1, "-1"):
        return {
            "parallel.gpus": unknown("trainer.devices: every visible GPU", devices.origin[0].span if devices.origin else None)
        }

    def count(value: Any) -> int:
        if isinstance(value, list):
            return len(value)
        return len([part for part in value.split(",") if part]) if isinstance(value, str) and "," in value else integer(value)

    return {"parallel.gpus": derive(count, devices)}


def _strategy(native: Native) -> Facts:
    named = given(native, "trainer.strategy.class_path", "trainer.strategy")
    if named is None or named.value == "auto":
        return {}
    result: Facts = {"parallel.strategy": derive(_strategy_name, named)}
    path = "trainer.strategy.init_args."
    stage = given(native, f"{path}stage")
    if stage is not None:
        result["parallel.strategy"] = derive(lambda _, number: f"zero{integer(number)}", named, stage)
    word = str(named.value)
    if word.startswith("deepspeed_stage_"):
        away = "offload" in word
        result["parallel.offload_optimizer"] = named.with_value("cpu" if away else "none")
        result["parallel.offload_params"] = named.with_value("cpu" if away and "_3" in word else "none")
    for key, name in (("parallel.offload_optimizer", "offload_optimizer"), ("parallel.offload_params", "offload_parameters"),
                      ("parallel.offload_params", "cpu_offload"), ("parallel.offload_optimizer", "cpu_offload")):  # fmt: skip
        fact = given(native, path + name)
        if fact is not None:
            result[key] = derive(lambda on: "cpu" if on is True else "none", fact)
    sharding = given(native, f"{path}sharding_strategy")
    if sharding is not None:
        result["parallel.fsdp_sharding"] = derive(lambda name: text(name).lower(), sharding)
        result["parallel.reshard_after_forward"] = derive(
            lambda name: text(name).lower() in ("full_shard", "hybrid_shard"), sharding
        )
    policy = given(native, f"{path}activation_checkpointing_policy", f"{path}activation_checkpointing")
    if policy is not None:
        result["checkpointing.enabled"] = derive(lambda _: True, policy)
    return result


def _strategy_name(value: Any) -> str:
    """`ddp_find_unused_parameters_true`, `deepspeed_stage_3_offload`, `lightning.pytorch.strategies.FSDPStrategy`."""
    word = text(value).rpartition(".")[2]
    if word.startswith("deepspeed_stage_"):
        return f"zero{word[16]}"
    if word.startswith("ddp"):
        return "ddp"
    return _STRATEGIES[word]


def _evaluation(native: Native) -> Facts:
    limit = given(native, "trainer.limit_val_batches")
    if limit is not None and limit.value in (0, 0.0):
        return {"eval.enabled": derive(lambda _: False, limit)}
    return {}


_WRITE = {
    "batch.gradient_accumulation_steps": "trainer.accumulate_grad_batches", "parallel.gpus": "trainer.devices",
    "parallel.nodes": "trainer.num_nodes",
}  # fmt: skip


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> the trainer's setting; None where Lightning's configuration cannot say it."""
    if key in _WRITE:
        return [(_WRITE[key], value)]
    if key == "precision":
        native = {"bf16-mixed": "bf16-mixed", "fp16-mixed": "16-mixed", "bf16-true": "bf16-true", "fp16-true": "16-true",
                  "fp32": "32-true"}.get(str(value))  # fmt: skip
        return [("trainer.precision", native)] if native else None
    if key == "parallel.strategy" and str(value) in ("zero1", "zero2", "zero3", "ddp"):
        return [("trainer.strategy", "ddp" if value == "ddp" else f"deepspeed_stage_{str(value)[-1]}")]
    if key == "eval.enabled" and value is False:
        return [("trainer.limit_val_batches", 0)]
    options = "trainer.strategy.init_args."
    if key == "parallel.fsdp_sharding":
        return [(f"{options}sharding_strategy", str(value).upper())]
    if key in ("parallel.offload_params", "parallel.offload_optimizer") and value in ("cpu", "none"):
        return [(f"{options}cpu_offload", value == "cpu")]
    return None


def alternatives(key: str, value: Any) -> list[list[tuple[str, Any]]]:
    """DeepSpeed by its name, which carries stage and offload."""
    if key in ("parallel.offload_params", "parallel.offload_optimizer") and value == "cpu":
        return [[("trainer.strategy", "deepspeed_stage_2_offload")], [("trainer.strategy", "deepspeed_stage_3_offload")]]
    return []
