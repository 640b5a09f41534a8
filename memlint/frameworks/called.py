"""What calls of library names make: training arguments, trainers, models, wrappers, objects whose arguments are kept."""

from __future__ import annotations

from memlint.facts import Fact, fixed
from memlint.frameworks.adapters import adapted
from memlint.frameworks.configurations import (
    OTHER_CLASSES,
    is_arguments,
    new_arguments,
)
from memlint.frameworks.installed import version_asked
from memlint.frameworks.lengths import record_random, record_tokenization
from memlint.frameworks.models import (
    MODEL,
    PEFT_CONFIGS,
    is_diffusion_model,
    is_model,
    is_model_class,
    load,
    models_in,
    new_config,
)
from memlint.frameworks.names import canonical, is_lightning_trainer, root_of
from memlint.frameworks.optimizers import new_optimizer
from memlint.frameworks.parallel import wrapper
from memlint.frameworks.probes import probe
from memlint.frameworks.processes import started
from memlint.frameworks.state import Collected, instances
from memlint.frameworks.trainers import is_trainer, new_trainer
from memlint.later import later
from memlint.read.pyeval.calls import call_function, call_value, observe
from memlint.read.pyeval.commands import CommandLines
from memlint.read.pyeval.joins import opaque
from memlint.read.pyeval.machine import Machine
from memlint.read.pyeval.values import Array, Call, Function, Instance, Opaque, Symbol, possible
from memlint.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from memlint.frameworks import engines, jobs, lightning, sentences, unsloth
else:
    engines, jobs, lightning, sentences, unsloth = later(
        "memlint.frameworks", "engines", "jobs", "lightning", "sentences", "unsloth"
    )

_FRAMEWORKS = frozenset(
    {"torch", "transformers", "trl", "peft", "accelerate", "deepspeed", "lightning", "unsloth", "bitsandbytes", "torchao",
     "sentence_transformers", "diffusers", "timm", "torchvision", "datasets", "optimum", "liger_kernel", "ray"}
)  # fmt: skip
QUANTIZERS = frozenset(
    {"BitsAndBytesConfig", "GPTQConfig", "AwqConfig", "HqqConfig", "EetqConfig", "AqlmConfig", "QuantoConfig", "TorchAoConfig",
     "FbgemmFp8Config", "FineGrainedFP8Config", "Mxfp4Config", "CompressedTensorsConfig", "HiggsConfig"}
)  # fmt: skip
_FIRST = {"TorchAoConfig": "quant_type", "GPTQConfig": "bits", "HqqConfig": "nbits", "AwqConfig": "bits"}
"""First positional parameter of quantization configurations (transformers 5.24, `utils/quantization_config.py`)."""
_NOT_MODEL_CONFIGS = frozenset({"GenerationConfig", "PretrainedConfig", "PreTrainedConfig", "WatermarkingConfig"})
_KEPT = frozenset(
    {"DataLoader", "StatefulDataLoader", "autocast", "no_grad", "inference_mode", "GradScaler", "MixedPrecision",
     "MixedPrecisionPolicy",
     "CPUOffload", "CPUOffloadPolicy", "OffloadPolicy", "ModuleWrapPolicy", "DataCollatorForLanguageModeling", "Accelerator",
     "FullyShardedDataParallelPlugin", "DeepSpeedPlugin", "GradientAccumulationPlugin", "Fabric", "DDPStrategy", "FSDPStrategy",
     "DeepSpeedStrategy", "ModelParallelStrategy", "AutoTokenizer", "AutoProcessor", "AutoTokenizer.from_pretrained",
     "DistributedSampler", "BatchSampler", "DistributedDataParallelKwargs", "ParallelismConfig"}
)  # fmt: skip
"""Library objects whose constructor arguments are kept."""

_TORCHVISION = ("resnet", "resnext", "wide_resnet", "vit_", "convnext", "efficientnet", "densenet", "vgg", "mobilenet", "swin",
                "regnet", "alexnet", "inception", "maxvit", "squeezenet", "shufflenet", "mnasnet", "googlenet")  # fmt: skip


class Calls(CommandLines):
    """The calls; `library.Frameworks` adds methods and attributes."""

    def __init__(self, collected: Collected) -> None:
        self.collected = collected

    def call(self, machine: Machine, name: str, call: Call) -> Fact | None:
        """See `Library.call`."""
        made = self._called(machine, name, call)
        self._note(made)
        return made

    def _note(self, made: Fact | None) -> None:
        """Keep the order in which training arguments and models come to be."""
        for instance in instances(made):
            if (instance.cls == MODEL or ".built" in instance.slots) and not any(instance is old for old in self.collected.made):
                self.collected.made.append(instance)

    def _called(self, machine: Machine, name: str, call: Call) -> Fact | None:
        root, tail = canonical(name)
        versions = self.collected.context.versions
        known = super().call(machine, name, call) or probe(machine, name, call) or version_asked(name, call, versions)
        if known is not None:
            return known
        if name == "torch.randint" and machine.observing:
            record_random(self.collected, call)
            return None
        if root in {"subprocess", "os"} and name in jobs.SPAWNERS:
            self._start(machine, jobs.spawned(machine, call))
            return None
        if root == "sagemaker" and jobs.is_estimator(name):
            return fixed(Instance(Symbol(name), call, dict(call.kwargs)), call.span)
        if tail in {"remote", "wraps", "lru_cache", "cache", "no_type_check", "contextmanager"} and not call.args:
            return None
        if root not in _FRAMEWORKS:
            return new_optimizer(name, call) or self._tokenizing(name, call)
        head, _, method = tail.partition(".")
        if is_arguments(root, head) and not method:
            return new_arguments(machine, name, call, versions)
        if root == "lightning" and head == "LightningCLI" and not method:
            return lightning.lightning_cli(machine, self.collected, call)
        if is_trainer(root, head) or is_lightning_trainer(root, head):
            return self._trainer(machine, name, call) if not method else None
        if head in OTHER_CLASSES or head in QUANTIZERS or head in PEFT_CONFIGS or (root == "torchao" and head.endswith("Config")):
            given = dict(call.kwargs)
            if call.args and head in _FIRST:
                given.setdefault(_FIRST[head], call.args[0])
            return fixed(Instance(Symbol(name), call, given), call.span)
        if root == "ray" and head == "ScalingConfig":
            return fixed(Instance(Symbol(name), call, dict(call.kwargs)), call.span)
        if root == "ray" and head in {"prepare_trainer", "prepare_model", "prepare_data_loader"}:
            return call.args[0] if call.args else None
        if root == "trl" and head in {"setup_chat_format", "clone_chat_template"}:
            return _with_template(head, call)
        if name.endswith("train_on_responses_only"):
            return call.argument("trainer", 0)  # unsloth: the same trainer with labels masked
        if root == "unsloth" and head in unsloth.FAST:
            if method == "from_pretrained":
                return unsloth.load_fast(head, call)
            return unsloth.adapt(machine, call) if method == "get_peft_model" else None
        return (
            adapted(machine, tail, call)
            or self._model(machine, root, head, method, call)
            or new_optimizer(name, call)
            or self._torch(machine, name, root, tail, call)
            or started(machine, self.collected, tail, call)
        )

    def _start(self, machine: Machine, started: jobs.Started | None) -> None:
        if started is not None and not machine.observing and not machine.shadow:
            self.collected.started.append(started)

    def _trainer(self, machine: Machine, name: str, call: Call) -> Fact:
        instance = Instance(Symbol(name), call, {})
        self._new_trainer(machine, instance, call)
        return fixed(instance, call.span)

    def _new_trainer(self, machine: Machine, instance: Instance, call: Call) -> None:
        if root_of(instance) == "lightning":
            for key, fact in call.kwargs.items():
                machine.write(instance, key, fact)
        else:
            look_into(machine, call)
            new_trainer(machine, instance, call)

    def _model(self, machine: Machine, root: str, head: str, method: str, call: Call) -> Fact | None:
        if root in {"timm", "torchvision"}:
            return self._vision(root, head, call)
        if root == "diffusers":
            if not is_diffusion_model(head):
                return None
            if not method:  # built from its sizes
                return load(head, call, **{".diffusion": True, ".config": new_config(head, call)})
            return load(head, call, **{".diffusion": True}) if method == "from_pretrained" else None
        if root not in {"transformers", "peft", "sentence_transformers", "optimum", "trl", "deepspeed", "liger_kernel"}:
            return None
        if (
            head.endswith("Config")
            and root != "peft"
            and head not in _NOT_MODEL_CONFIGS
            and method in {"", "from_pretrained", "for_model", "from_dict"}
        ):
            return new_config(f"{head}.{method}" if method else head, call)
        if not is_model_class(head):
            return self._kept(machine, f"{root}.{head}" + (f".{method}" if method else ""), head, call)
        if method == "from_pretrained":
            return load(head, call)
        if method in {"from_config", "_from_config"} or (not method and root == "transformers"):
            config = call.argument("config", 0) or opaque("no config is given", "config", (), call.span)
            return load(head, call, **{".config": config, ".default_dtype": self.collected.default_dtype})
        return sentences.load_sentences(head, call) if not method and root == "sentence_transformers" else None

    def _vision(self, root: str, head: str, call: Call) -> Fact | None:
        if root == "timm" and head == "create_model":
            name = call.argument("model_name", 0)
            return load("TimmModel", call, **{".id": name or opaque("no model name is given", "timm", (), call.span)})
        if root == "torchvision" and head[:1].islower() and any(head.startswith(p) for p in _TORCHVISION):
            return load("TorchvisionModel", call, **{".id": fixed(head, call.span)})
        return None

    def _torch(self, machine: Machine, name: str, root: str, tail: str, call: Call) -> Fact | None:
        strategy = wrapper(name)
        if strategy is not None:
            return self._wrapped(machine, strategy, name, call)
        if root == "torch" and tail == "compile":
            for model in [m for f in call.args[:1] for v in possible(f) for m in models_in(v)]:
                machine.write(model, ".compiled", call)
            return call.args[0] if call.args else None
        if root == "torch" and tail == "checkpoint":
            inputs = (*call.args, *call.kwargs.values())
            if call.args and isinstance(call.args[0].value, Function) and call.args[0].known:
                inputs = (
                    *inputs,
                    call_function(
                        machine, call.args[0].value, Call("checkpoint", call.args[1:], {}, call.span, "called elsewhere")
                    ),
                )
            elif call.args:
                inner = Call("checkpoint", call.args[1:], {}, call.span)
                inputs = (*inputs, call_value(machine, call.args[0], inner))
            return opaque("a checkpointed result", "checkpoint", inputs, call.span, call=call)
        if tail == "apply_activation_checkpointing":
            for model in [m for f in call.args[:1] for v in possible(f) for m in models_in(v)]:
                machine.write(model, ".checkpointing", fixed(True, call.span))
            return fixed(None)
        if tail == "checkpoint_wrapper" and call.args:
            for held in [v for v in possible(call.args[0]) if isinstance(v, Opaque)]:
                for inner in [v for v in held.ancestry() if is_model(v)]:
                    machine.write(inner, ".checkpointing", fixed(True, call.span))
            return call.args[0]
        if root == "torch" and tail == "set_default_dtype" and call.args:
            self.collected.default_dtype = call.args[0]
            return fixed(None, call.span)
        if root == "deepspeed" and tail == "initialize":
            return engines.initialize(machine, call)
        if root == "deepspeed" and tail.endswith("set_z3_leaf_modules"):
            self.collected.process_facts["parallel.zero3_leaf_modules"] = fixed(True, call.span)
            return fixed(None, call.span)
        if root == "deepspeed" and tail == "add_config_arguments":
            return engines.deepspeed_options(machine, call)
        return self._kept(machine, name, tail, call)

    def _kept(self, machine: Machine, name: str, tail: str, call: Call) -> Fact | None:
        if tail in _KEPT or tail.startswith("DataCollator") or tail.endswith(("TokenizerFast", "Tokenizer")):
            look_into(machine, call)
            attributes = {k: f for k, f in call.kwargs.items() if (tail, k) != ("Accelerator", "mixed_precision")}
            return fixed(Instance(Symbol(name), call, attributes), call.span)
        return self._tokenizing(name, call)

    def _wrapped(self, machine: Machine, strategy: str, name: str, call: Call) -> Fact | None:
        target = call.argument("module", 0) or call.argument("model", 0)
        made = Instance(Symbol(name), call, {".strategy": strategy})
        for value in possible(target) if target is not None else ():
            owners = models_in(value) or ([value] if isinstance(value, Instance) else [])
            for model in owners:
                machine.write(model, ".wrapped", fixed(made, call.span))
            if isinstance(value, Opaque):
                for model in [v for v in value.ancestry() if is_model(v)]:
                    machine.write(model, ".wrapped_parts", True)
                    if ".wrapped" not in model.slots:
                        machine.write(model, ".wrapped", fixed(made, call.span))
        return target

    def _tokenizing(self, name: str, call: Call) -> Fact | None:
        if "max_length" in call.kwargs and ("truncation" in call.kwargs or "padding" in call.kwargs):
            record_tokenization(self.collected, call)
        return None


def _with_template(function: str, call: Call) -> Fact | None:
    """The same model and tokenizer, with tokens added (trl `chat_template_utils.py`); `clone_chat_template` lists them too."""
    model, tokenizer = call.argument("model", 0), call.argument("tokenizer", 1)
    if model is None or tokenizer is None:
        return None
    added = [opaque("the tokens that are added", "tokens", (), call.span)] if function == "clone_chat_template" else []
    return fixed(Array([model, tokenizer, *added], "tuple"), call.span)


def look_into(machine: Machine, call: Call) -> None:
    """Functions that a library object gets (collators, metrics) may tokenize."""
    for fact in (*call.args, *call.kwargs.values()):
        if fact.known:
            observe(machine, fact.value)
