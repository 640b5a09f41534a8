"""PEFT in a script: adapters added to models, and kbit preparation."""

from __future__ import annotations

from memlint.dialects.peft import METHODS
from memlint.facts import Fact, Status, default, fixed
from memlint.frameworks.models import LOADED_ADAPTER, is_model, models_in
from memlint.frameworks.names import class_name
from memlint.frameworks.state import instances
from memlint.read.pyeval.joins import opaque
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.values import Call, Instance, Symbol, Table, possible


def adapted(machine: Machine, tail: str, call: Call) -> Fact | None:
    """PEFT's functions, and TRL's that make its configurations; None for any other name."""
    if tail in {"get_peft_model", "prepare_model_for_kbit_training", "prepare_model_for_int8_training"}:
        model = call.argument("model", 0)
        for inner in [m for v in possible(model) for m in models_in(v)] if model is not None else []:
            if tail == "get_peft_model":
                config = call.argument("peft_config", 1)
                machine.write(inner, ".adapter", config or opaque("no adapter config is given", "peft", (), call.span))
                machine.write(inner, ".trainable", None)
            else:
                _kbit(machine, inner, call)
        return model
    if tail == "PeftModel.from_pretrained":
        model = call.argument("model", 0)
        for inner in instances(model):
            if is_model(inner):
                reason = LOADED_ADAPTER
                machine.write(inner, ".adapter", opaque(reason, "adapter", (), call.span))
        return model
    if tail == "get_peft_config":
        return _model_config_adapter(call) or _config_of_type(machine, call)
    if tail == "get_quantization_config":
        return _model_config_quantization(call)
    if tail == "get_kbit_device_map":
        return fixed(None, call.span)
    return None


def _kbit(machine: Machine, model: Instance, call: Call) -> None:
    machine.write(model, ".kbit", True)
    switch = call.argument("use_gradient_checkpointing", 1)
    enabled = switch if switch is not None else default(True, "peft: prepare_model_for_kbit_training", call.span)
    if enabled.known and enabled.value is False:
        return
    machine.write(model, ".checkpointing", enabled)
    machine.write(model, ".input_grads", fixed(True, call.span))
    options = call.argument("gradient_checkpointing_kwargs", 2)
    reentrant = options.value.slots.get("use_reentrant") if options is not None and isinstance(options.value, Table) else None
    machine.write(model, ".reentrant", reentrant or default(True, "torch's default: peft passes no use_reentrant", call.span))


def _model_config_adapter(call: Call) -> Fact | None:
    for config in instances(call.argument("model_args", 0) or call.argument("model_config", 0)):
        if class_name(config) == "ModelConfig":
            slots = {k: f for k, f in config.slots.items() if not str(k).startswith(".")}
            return fixed(Instance(Symbol("peft.LoraConfig"), config.call, {**slots, ".model_config": True}), call.span)
    return None


def _config_of_type(machine: Machine, call: Call) -> Fact | None:
    """`peft.get_peft_config(dict)`: the class that its `peft_type` names, with the dict as arguments (peft 0.21.2, `mapping.py`)."""
    given = call.argument("config_dict", 0)
    table = given.value if given is not None else None
    kind = table.slots.get("peft_type") if isinstance(table, Table) and given is not None and given.known else None
    if kind is None or not kind.known or not isinstance(table, Table):
        return None
    method = str(kind.value).rpartition(".")[2].lower()
    name = next((name for name, known in METHODS.items() if known == method), "")
    kwargs = {str(key): value for key, value in table.entries()}
    return machine.call(fixed(Symbol(f"peft.{name}")), Call(name, (), kwargs, call.span, call.open)) if name else None


def _model_config_quantization(call: Call) -> Fact | None:
    for config in instances(call.argument("model_args", 0) or call.argument("model_config", 0)):
        four, eight = config.slots.get("load_in_4bit"), config.slots.get("load_in_8bit")
        on = [f for f in (four, eight) if isinstance(f, Fact) and not (f.known and f.value in (False, None))]
        if not on:
            return Fact(None, Status.DEFAULT, (), reason="")
        kwargs = {k: config.slots[k] for k in ("load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type") if k in config.slots}
        kwargs.setdefault("bnb_4bit_quant_type", default("nf4", "trl.ModelConfig"))
        if "use_bnb_nested_quant" in config.slots:
            kwargs["bnb_4bit_use_double_quant"] = config.slots["use_bnb_nested_quant"]
        if "dtype" in config.slots:
            kwargs["bnb_4bit_compute_dtype"] = config.slots["dtype"]
        made = Call("BitsAndBytesConfig", (), kwargs, call.span)
        return fixed(Instance(Symbol("transformers.BitsAndBytesConfig"), made, dict(kwargs)), call.span)
    return None
