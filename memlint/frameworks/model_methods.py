"""What calls of a model's own methods leave in its state: casts, checkpointing, adapters, compilation."""

from __future__ import annotations

from memlint.facts import Fact, default, fixed
from memlint.frameworks.names import canonical
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.values import Call, Instance, Symbol, Table
from memlint.typed import Any
from memlint.versions import Versions

_CASTS = {"half": "float16", "bfloat16": "bfloat16", "float": "float32", "double": "float64"}
_SAME = frozenset(
    """cuda cpu to half bfloat16 float double train eval requires_grad_ share_memory to_bettertransformer compile
    merge_and_unload unload get_base_model""".split()  # noqa: SIM905
)


def model_method(machine: Machine, owner: Fact, model: Instance, name: str, call: Call, versions: Versions) -> Fact | None:
    """What a method does to a model; None when it is nothing that matters."""
    if name in _CASTS:
        machine.write(model, ".cast", fixed(_CASTS[name], call.span))
    elif name == "to":
        _to(machine, model, call)
    elif name == "gradient_checkpointing_enable":
        enable_checkpointing(machine, model, call, versions)
    elif name == "gradient_checkpointing_disable":
        machine.write(model, ".checkpointing", fixed(False, call.span))
    elif name == "enable_input_require_grads":
        machine.write(model, ".input_grads", fixed(True, call.span))
    elif name in {"set_gradient_checkpointing", "set_grad_checkpointing", "enable_gradient_checkpointing"}:
        given = (
            call.args[0] if call.args and call.args[0].known and isinstance(call.args[0].value, bool) else fixed(True, call.span)
        )
        machine.write(model, ".checkpointing", given)
    elif name in {"merge_and_unload", "unload"}:
        machine.write(model, ".adapter", fixed(None, call.span))
    elif name == "add_adapter":
        config = call.argument("adapter_config", 0)
        if config is not None and not isinstance(config.value, str):
            machine.write(model, ".adapter", config)
            machine.write(model, ".trainable", None)
    elif name == "compile":
        machine.write(model, ".compiled", call)
    elif name == "eval":
        machine.write(model, ".eval", True)
    elif name == "train":
        machine.write(model, ".eval", False)
    return owner if name in _SAME else None


def enable_checkpointing(machine: Machine, model: Instance, call: Call, versions: Versions) -> None:
    """`gradient_checkpointing_enable(gradient_checkpointing_kwargs=None)`."""
    machine.write(model, ".checkpointing", fixed(True, call.span))
    if ".adapter" in model.slots and not versions.at_least("transformers", "5.0"):
        # `get_peft_model` makes the embeddings require gradients only if checkpointing is on already (peft 0.21.2
        # `peft_model.py`); `gradient_checkpointing_enable` itself does so since transformers 5.0.0.
        machine.write(model, ".bare_checkpointing", fixed(False, call.span))
    options = call.argument("gradient_checkpointing_kwargs", 0)
    if options is not None and isinstance(options.value, Table) and "use_reentrant" in options.value.slots:
        machine.write(model, ".reentrant", options.value.slots["use_reentrant"])
        return
    legacy = not versions.at_least("transformers", "5.0")
    machine.write(model, ".reentrant", default(legacy, f"{versions.note('transformers')} default"))


def _to(machine: Machine, model: Instance, call: Call) -> None:
    for argument in (*call.args, *(call.kwargs[k] for k in ("dtype",) if k in call.kwargs)):
        values = argument.values
        if values and all(_dtype(v) for v in values):
            machine.write(model, ".cast", argument)


def _dtype(value: Any) -> bool:
    return isinstance(value, Symbol) and canonical(value.name)[0] == "torch" and value.name.rpartition(".")[2] in {
        "float16", "half", "bfloat16", "float32", "float", "float64", "double",
    }  # fmt: skip
