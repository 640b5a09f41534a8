"""The framework models as the interpreter sees them: what methods and attributes of library objects do, beside the calls of `called`."""

from __future__ import annotations

from memlint.facts import Fact, default, fixed
from memlint.frameworks.called import QUANTIZERS, Calls
from memlint.frameworks.configurations import (
    OTHER_CLASSES,
    configuration_fields,
    construct_arguments,
    default_attribute,
    is_arguments,
)
from memlint.frameworks.freezing import freeze, freeze_by_name
from memlint.frameworks.installed import version_of
from memlint.frameworks.lengths import record_block, record_cut, record_tokenization
from memlint.frameworks.model_methods import model_method
from memlint.frameworks.models import MODEL, PEFT_CONFIGS, is_model_class, models_in, part
from memlint.frameworks.names import canonical, class_name, is_lightning_trainer, root_of
from memlint.frameworks.optimizers import is_optimizer
from memlint.frameworks.probes import drawn
from memlint.frameworks.processes import shrinking, worked
from memlint.frameworks.trainers import is_trainer, train_loader, trained
from memlint.later import later
from memlint.read.pyeval.calls import call_function, call_value
from memlint.read.pyeval.joins import opaque
from memlint.read.pyeval.machine import Loop, Machine
from memlint.read.pyeval.objects import attributes_of
from memlint.read.pyeval.values import Array, Bound, Call, Class, Function, Instance, Opaque, Symbol
from memlint.source import Span
from memlint.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from memlint.frameworks import accelerators, engines, jobs, lightning, loops, sentences, unsloth
else:
    accelerators, engines, jobs, lightning, loops, sentences, unsloth = later(
        "memlint.frameworks", "accelerators", "engines", "jobs", "lightning", "loops", "sentences", "unsloth"
    )

_MODULE_METHODS = frozenset({"to", "cuda", "train", "eval", "half", "bfloat16", "float", "requires_grad_", "cpu", "compile"})


class Frameworks(Calls):
    """Models of the training frameworks; collects the runs of one script."""

    def method(self, machine: Machine, owner: Fact, name: str, call: Call) -> Fact | None:
        """See `Library.method`."""
        value = owner.value
        known = super().method(machine, owner, name, call)
        if known is not None:
            return known
        if name == "backward":
            return self._backward(machine, owner, call)
        if name == "requires_grad_":
            freeze(machine, self.collected.made, owner, call.argument("requires_grad", 0) or fixed(True, call.span))
            return owner
        if name == "suggest_categorical":
            return drawn(call.argument("choices", 1))  # Optuna
        if isinstance(value, Instance):
            found = self._instance_method(machine, owner, value, name, call)
            if found is not None:
                return found
        if name == "step" and (not call.args or _is_closure(call)):
            if call.args:
                call_value(machine, call.args[0], Call("closure", (), {}, call.span))
            loops.record(machine, "step", owner, call.span)
        if name in {"cuda", "to", "cpu", "contiguous", "detach", "clone", "unsqueeze", "view"} and isinstance(value, Opaque):
            return opaque(owner.reason, f"call:{name}", (owner, *call.args), call.span)
        if "max_length" in call.kwargs:
            record_tokenization(self.collected, call)
        elif "truncation" in call.kwargs and isinstance(value, Instance):
            longest = value.slots.get("model_max_length")
            if isinstance(longest, Fact):
                given = {**call.kwargs, "max_length": longest}
                record_tokenization(self.collected, Call(call.name, call.args, given, call.span))
        return None

    def _backward(self, machine: Machine, owner: Fact, call: Call) -> Fact:
        holder = owner.value if isinstance(owner.value, Instance) else None
        if call.args and holder is not None:
            loops.record(machine, "backward", call.args[0], call.span, holder)
        else:
            loops.record(machine, "backward", owner, call.span)
        return fixed(None, call.span)

    def _instance_method(self, machine: Machine, owner: Fact, value: Instance, name: str, call: Call) -> Fact | None:
        if value.cls == MODEL:
            if name in {"__call__", "forward"}:
                return engines.forward_pass(machine, owner, call)
            if name.startswith("freeze"):
                freeze_by_name(machine, value, name, call.span)
            if name == "fit" and value.slots[".class"] in sentences.FITTED:
                return sentences.fit_model(machine, self.collected, value, call)
            if name == "generate":
                engines.forward_pass(machine, owner, call)
            return model_method(machine, owner, value, name, call, self.collected.context.versions)
        root, tail = canonical(value.library)
        head = tail.partition(".")[0]
        if is_trainer(root, head):
            if name in {"train", "hyperparameter_search"}:
                trained(machine, self.collected, value, call)
                return opaque("the result of train()", "made", (), call.span)
            if name == "__init__":
                self._new_trainer(machine, value, call)
            return train_loader(value, call) if name == "get_train_dataloader" else None
        if root == "ray" and name == "fit" and "scaling_config" in value.slots:
            return worked(machine, self.collected, value)
        if root == "sagemaker" and name in {"fit", "train"}:
            self._start(machine, jobs.submitted(value))
            return fixed(None, call.span)
        if is_lightning_trainer(root, head) and name == "fit":
            lightning.fitted(machine, self.collected, value, call)
            return fixed(None, call.span)
        if head in {"Accelerator", "Fabric"}:
            return self._accelerator(machine, owner, value, name, call)
        if ".engine" in value.slots:
            return engines.engine_method(machine, self.collected.context.versions, owner, value, name, call)
        if head == "GradScaler":
            if name == "scale" and call.args:
                return call.args[0]
            if name == "step" and call.args:
                loops.record(machine, "step", call.args[0], call.span)
                return fixed(None)
        if is_optimizer(value) and name == "step":
            if _is_closure(call):
                call_value(machine, call.args[0], Call("closure", (), {}, call.span))
            loops.record(machine, "step", owner, call.span)
            return fixed(None)
        if name == "save_hyperparameters":
            return _hyperparameters(machine, value, call)
        if name == "__call__" and isinstance(value.cls, Class):
            return self._module_call(machine, owner, value, call)
        if isinstance(value.cls, Class) and root == "torch" and name in _MODULE_METHODS:
            for model in models_in(value) or [value]:
                model_method(machine, fixed(model), model, name, call, self.collected.context.versions)
            return owner
        if is_arguments(root, head) and name.startswith("set_"):
            return None
        if name == "accumulate":
            return None
        return None

    def _module_call(self, machine: Machine, owner: Fact, value: Instance, call: Call) -> Fact | None:
        forward = value.cls.find("forward") if isinstance(value.cls, Class) else None
        inner: tuple[Fact, ...] = ()
        if forward is not None and isinstance(forward.value, Function):
            inner = (
                call_function(machine, forward.value, Call("forward", (owner, *call.args), call.kwargs, call.span, call.open)),
            )
        elif root_of(value) != "torch" and root_of(value) != "lightning":
            return None
        return engines.forward_pass(machine, owner, call, inner)

    def _accelerator(self, machine: Machine, owner: Fact, value: Instance, name: str, call: Call) -> Fact | None:
        if name in {"prepare", "setup"}:
            if name == "setup" and class_name(value) == "Fabric":
                call = Call(call.name, tuple(a for a in call.args), {}, call.span)
            return call.args[0] if len(call.args) == 1 else fixed(Array(call.args, "tuple"), call.span)
        if name in {
            "prepare_model",
            "prepare_optimizer",
            "prepare_data_loader",
            "setup_module",
            "setup_optimizers",
            "unwrap_model",
        }:
            return call.args[0] if call.args else None
        if name == "setup_dataloaders":
            return call.args[0] if len(call.args) == 1 else fixed(Array(call.args, "tuple"), call.span)
        if name == "launch":
            functions = [a for a in call.args if isinstance(a.value, Function)]
            if functions:
                return call_value(machine, functions[0], Call("launch", (owner, *call.args[1:]), call.kwargs, call.span))
            return fixed(None)
        return None

    # --- attributes and the rest ------------------------------------------------------------------------------------

    def attribute(self, machine: Machine, owner: Instance, name: str, span: Span) -> Fact | None:
        """See `Library.attribute`."""
        if owner.cls == MODEL:
            if name == "config":
                made = Instance(Symbol("memlint.loaded_config"), owner.call)
                machine.write(owner, "config", fixed(made, span))
                return fixed(made, span)
            if name in {"module", "_orig_mod"} or (name == "base_model" and ".adapter" in owner.slots):
                return fixed(owner, span)
            return part(fixed(owner), name, span)
        root, tail = canonical(owner.library)
        if ".engine" in owner.slots and name == "module":
            module: Fact = owner.slots["module"]
            return module
        if is_arguments(root, tail) or tail in OTHER_CLASSES:
            if name in {"device", "world_size", "local_rank", "process_index"}:
                return fixed(0, span) if name != "world_size" and name != "device" else None
            return default_attribute(owner, name, self.collected.context.versions)
        if tail in {"Accelerator", "Fabric"}:
            if name in {"is_main_process", "is_local_main_process", "is_global_zero", "sync_gradients"}:
                return opaque("sync_gradients", "sync", (), span) if name == "sync_gradients" else fixed(True, span)
            if name == "mixed_precision":
                return accelerators.accelerated_precision(machine, owner, span)
            if name == "gradient_accumulation_steps":
                given = owner.call.kwargs.get("gradient_accumulation_steps")
                return given or default(1, "accelerate", span)
            if name in {"process_index", "local_process_index", "global_rank", "local_rank"}:
                return fixed(0, span)
        if tail == "DataLoader" and name in {"batch_size"}:
            return owner.call.argument("batch_size", 1)
        if name == "hparams" and ".hparams" in owner.slots:
            hparams: Fact = owner.slots[".hparams"]
            return hparams
        return super().attribute(machine, owner, name, span)

    def construct(self, machine: Machine, instance: Instance, call: Call) -> None:
        """See `Library.construct`."""
        root, tail = canonical(instance.library)
        if is_arguments(root, tail):
            construct_arguments(machine, instance, call, self.collected.context.versions)
            self._note(fixed(instance))
        elif is_trainer(root, tail) or is_lightning_trainer(root, tail):
            self._new_trainer(machine, instance, call)
        elif (
            tail in {"PreTrainedModel", "PretrainedConfig", "PreTrainedConfig"}
            or tail in OTHER_CLASSES
            or tail in PEFT_CONFIGS
            or tail in QUANTIZERS
        ):
            for key, fact in call.kwargs.items():
                machine.write(instance, key, fact)

    def decorate(self, machine: Machine, decorator: Fact, target: Fact, span: Span) -> Fact | None:
        """See `Library.decorate`."""
        if isinstance(decorator.value, Instance) and ".start" in decorator.value.slots:
            return shrinking(machine, self.collected, target, decorator.value.slots[".start"])
        if isinstance(decorator.value, Symbol) and decorator.value.name.endswith("find_executable_batch_size"):
            return shrinking(machine, self.collected, target, None)
        if isinstance(decorator.value, Opaque) and decorator.value.operation == "call:local_entrypoint":
            call_value(machine, target, Call("local_entrypoint", (), {}, span))  # `modal run` calls it
        return super().decorate(machine, decorator, target, span)

    def symbol(self, machine: Machine, name: str, span: Span) -> Fact | None:
        """See `Library.symbol`."""
        return super().symbol(machine, name, span) or version_of(name, self.collected.context.versions, span)

    def loop_ended(self, machine: Machine, loop: Loop) -> None:
        """See `Library.loop_ended`."""
        if loop.records:
            loops.loop_ended(machine, self.collected, loop)

    def assigned(self, machine: Machine, owner: Fact, name: str, value: Fact) -> None:
        """See `Library.assigned`."""
        if name == "requires_grad":
            freeze(machine, self.collected.made, owner, value)

    def strided(self, machine: Machine, step: Fact, span: Span) -> None:
        """See `Library.strided`."""
        if machine.observing:
            record_block(self.collected, step, span)

    def cut(self, machine: Machine, name: str, length: Fact, span: Span) -> None:
        """See `Library.cut`."""
        if machine.frame.function is not None:
            record_cut(self.collected, name, length, span)

    def interesting(self, text: str) -> bool:
        """See `Library.interesting`: tokenizer calls, cut samples and blocks of grouped texts are what counts there."""
        return any(word in text for word in ("max_len", "max_seq", "cutoff", "block", "group", "randint"))

    def fields(self, name: str) -> frozenset[str]:
        """See `Library.fields`."""
        return configuration_fields(name)

    def provides(self, root: str, name: str) -> bool:
        """See `Library.provides`."""
        if root.startswith("fastcore"):
            return name in {"call_parse", "Param", "bool_arg", "store_true"}
        head, tail = canonical(f"{root}.{name}")
        if head in {"transformers", "trl", "peft", "unsloth", "sentence_transformers"}:
            return (is_arguments(head, tail) or is_trainer(head, tail) or (head == "unsloth" and tail in unsloth.FAST)
                    or tail in PEFT_CONFIGS or tail in QUANTIZERS
                    or (head == "transformers" and (is_model_class(tail) or tail.startswith("Auto") or tail.endswith("Config")))
                    or tail in {"get_peft_model", "prepare_model_for_kbit_training", "is_bfloat16_supported"})  # fmt: skip
        return False


def _hyperparameters(machine: Machine, owner: Instance, call: Call) -> Fact:
    """Lightning's `save_hyperparameters()`: the constructor's arguments become `self.hparams`."""
    given = dict(machine.frame.scope.slots)
    given.pop(next(iter(given), ""), None)
    if call.args and isinstance(call.args[0].value, Instance):
        given = attributes_of(call.args[0].value)
    hparams = Instance(Symbol("lightning.AttributeDict"), call, {k: f for k, f in given.items() if isinstance(f, Fact)})
    machine.write(owner, ".hparams", fixed(hparams, call.span))
    return fixed(None, call.span)


def _is_closure(call: Call) -> bool:
    """`optimizer.step(closure)`: the optimizer evaluates the loss itself, LBFGS several times."""
    return bool(call.args) and isinstance(call.args[0].value, (Function, Bound))
