"""`transformers.TrainingArguments` (and its subclasses' inherited part) to canonical facts, by version.

Read in transformers 4.30.2 ... 5.24.0, `training_args.py` and `trainer.py`; the literal defaults are data
(`memlint/defaults/transformers.json`), what `__post_init__` makes of them is here.
"""

from __future__ import annotations

from memlint.defaults import default_fact, default_value
from memlint.dialects.derive import Facts, Impossible, Native, boolean, derive, given, integer, text
from memlint.dialects.hf_fsdp import trainer_fsdp
from memlint.facts import Fact, Problem, default, fixed
from memlint.facts.keys import normalise
from memlint.typed import Any
from memlint.versions import Versions

_PLAIN = (
    ("eval.accumulation_steps", "eval_accumulation_steps", integer),
    ("parallel.find_unused_parameters", "ddp_find_unused_parameters", boolean),
    ("parallel.static_graph", "ddp_static_graph", boolean),
    ("compile.mode", "torch_compile_mode", text),
    ("parallel.sync_each_batch", "accelerator_config.gradient_accumulation_kwargs.sync_each_batch", boolean),
)
"""Facts that are there only when their argument is given."""


class Arguments:
    """The arguments of one configuration class as given, over the defaults of its version.

    `arguments("bf16")` is the given fact, else the default of the library's version. Used by every dialect that ends in an HF
    dataclass; `library` and `class_name` name it in `memlint/defaults`.
    """

    def __init__(self, native: Native, versions: Versions, library: str, class_name: str) -> None:
        self.native, self.versions, self.package, self.class_name = native, versions, library, class_name

    def __call__(self, *names: str) -> Fact:
        """The first of the given names, else the default of the first that the version has."""
        fact = given(self.native, *names)
        if fact is not None:
            return fact
        for name in names:
            found = default_fact(self.package, self.class_name, name, self.versions)
            if found.known:
                return found
        return default_fact(self.package, self.class_name, names[0], self.versions)

    def given(self, *names: str) -> Fact | None:
        """The first of the names that the input gives (an explicit null counts as absent)."""
        return given(self.native, *names)

    def default(self, name: str) -> Any:
        """The default value of an argument; `defaults.MISSING` where the version has no such argument."""
        return default_value(self.package, self.class_name, name, self.versions)

    def note(self) -> str:
        """The origin of this class's defaults."""
        return f"{self.versions.note(self.package)} default of {self.class_name}"


def training_arguments(
    native: Native, versions: Versions | None = None, *, library: str = "transformers", class_name: str = "TrainingArguments"
) -> Facts:
    """Canonical facts of a `TrainingArguments` family call or mapping; every key that the class decides is there.

    `native`: argument name -> fact; nested arguments dotted (`gradient_checkpointing_kwargs.use_reentrant`,
    `fsdp_config.offload_params`). Mapping-valued arguments may also be given whole. Not decided here, because they depend
    on more than the arguments: `model.*`, `adapter.*`, the strategy without FSDP (DDP or one GPU), and what `deepspeed`
    links to (`memlint.dialects.deepspeed.plugin_facts`). `precision` is `fp32` where no autocast is on; call
    `memlint.dialects.settle.settle` when the model's facts are there too.
    """
    versions = versions or Versions()
    arguments = Arguments(expanded(native), versions, library, class_name)
    facts: Facts = {
        "batch.micro_batch_size": derive(integer, arguments("per_device_train_batch_size", "per_gpu_train_batch_size")),
        "batch.gradient_accumulation_steps": derive(integer, arguments("gradient_accumulation_steps")),
        "batch.auto_find": derive(boolean, arguments("auto_find_batch_size")),
        "precision": precision(arguments),
        "optimizer.name": optimizer(arguments),
        "optimizer.in_backward": derive(lambda name: "layerwise" in str(name), arguments("optim")),
        "compile": _compile(arguments),
        "loss.logits": _logits(arguments),
    }
    for key, name, convert in _PLAIN:
        fact = arguments.given(name)
        if fact is not None:
            facts[key] = derive(convert, fact)
    facts |= checkpointing(arguments) | evaluation(arguments) | trainer_fsdp(arguments.native, versions)
    targets = arguments.given("optim_target_modules")
    if targets is not None:
        facts["optimizer.target_modules"] = targets
    facts["trainer.outputs_fp32"] = derive(lambda mode: mode != "fp32", facts["precision"])
    return facts


def expanded(native: Native) -> dict[str, Fact]:
    """Arguments whose value is a mapping, also by their parts (`fsdp_config` -> `fsdp_config.offload_params`)."""
    result = dict(native)
    for name, fact in native.items():
        if fact.known and isinstance(fact.value, dict):
            for key, value in fact.value.items():
                result.setdefault(f"{name}.{key}", fact.with_value(value))
    return result


def problems(native: Native) -> tuple[Problem, ...]:
    """Combinations that `TrainingArguments` or the Trainer refuses."""
    return (*_both_precisions(native), *_checkpointed_twice(native), *_not_offloaded(native))


def _not_offloaded(native: Native) -> tuple[Problem, ...]:
    """accelerate's word for the offload in `fsdp_config`, which the Trainer does not read (`_process_fsdp_args`)."""
    asked = given(native, "fsdp_config.offload_params", "fsdp_config.fsdp_offload_params")
    if asked is None or not _on(asked) or given(native, "fsdp") is None or not asked.origin or asked.origin[0].span is None:
        return ()
    message = "offload_params has no effect in fsdp_config: the Trainer reads cpu_offload (before 5.12 the word offload of fsdp)"
    return (Problem("offload-key-without-effect", message, asked.origin[0].span),)


def _checkpointed_twice(native: Native) -> tuple[Problem, ...]:
    """`fsdp_config.activation_checkpointing` beside the Trainer's own (`trainer.py`, every version with FSDP)."""
    by_fsdp = given(native, "fsdp_config.activation_checkpointing", "fsdp_config.fsdp_activation_checkpointing")
    own = given(native, "activation_checkpointing", "gradient_checkpointing")
    switch = given(native, "fsdp")
    if by_fsdp is None or own is None or switch is None or not (_on(by_fsdp) and _on(own) and switch.value):
        return ()
    spans = [fact.origin[0].span for fact in (own, by_fsdp) if fact.origin and fact.origin[0].span is not None]
    if not spans:
        return ()
    message = "activation checkpointing is on in fsdp_config and in the training arguments: the Trainer refuses both together"
    return (Problem("checkpointing-twice", message, spans[0], tuple(spans[1:])),)


def _both_precisions(native: Native) -> tuple[Problem, ...]:
    fp16, bf16 = given(native, "fp16"), given(native, "bf16")
    if fp16 is not None and bf16 is not None and _on(fp16) and _on(bf16):
        spans = [fact.origin[0].span for fact in (fp16, bf16) if fact.origin and fact.origin[0].span is not None]
        if spans:
            message = "fp16 and bf16 are both on: at most one of them is accepted"
            return (Problem("fp16-and-bf16-both", message, spans[0], tuple(spans[1:])),)
    return ()


def _on(fact: Fact) -> bool:
    return fact.known and str(fact.value).lower() in ("true", "1", "yes")


def precision(arguments: Arguments) -> Fact:
    """The autocast mode: `bf16-mixed`, `fp16-mixed`, or `fp32` for none.

    TRL since 0.19 turns `bf16=None` into `not fp16`; `use_cpu` keeps autocast on.
    """
    bf16, fp16 = arguments("bf16"), arguments("fp16")

    def mode(use_bf16: Any, use_fp16: Any) -> str:
        half = boolean(use_fp16) if use_fp16 is not None else False
        brain = boolean(use_bf16) if use_bf16 is not None else (not half if arguments.package == "trl" else False)
        if half and brain:
            raise Impossible("fp16 and bf16 are both on")
        return "bf16-mixed" if brain else "fp16-mixed" if half else "fp32"

    return derive(mode, bf16, fp16)


def optimizer(arguments: Arguments) -> Fact:
    """`optim`, or the default: fused since transformers 4.54 with torch 2.8 (`default_optim` of `TrainingArguments`)."""
    adafactor = arguments.given("adafactor")
    if adafactor is not None and _on(adafactor):
        return derive(lambda _: "adafactor", adafactor)
    given_name = arguments.given("optim")
    if given_name is not None:
        return derive(lambda name: normalise("optimizer.name", text(name)), given_name)
    fact = arguments("optim")
    fused = arguments.versions.at_least("transformers", "4.54") and arguments.versions.at_least("torch", "2.8")
    return derive(lambda name: "adamw_torch_fused" if fused and name == "adamw_torch" else name, fact)


def checkpointing(arguments: Arguments) -> Facts:
    """`checkpointing.*`; the new names of 5.24 win over the old ones when both are given."""
    versions = arguments.versions
    renamed = versions.at_least("transformers", "5.13")
    names = ("activation_checkpointing", "gradient_checkpointing") if renamed else ("gradient_checkpointing",)
    switch = arguments.given(*names)
    if switch is None:
        defaults = [fact for fact in (default_fact(arguments.package, arguments.class_name, n, versions) for n in names)
                    if fact.known and fact.value is not None]  # fmt: skip
        switch = defaults[0] if defaults else default(False, arguments.note())
    enabled = derive(boolean, switch)
    facts: Facts = {"checkpointing.enabled": enabled}
    if enabled.known and enabled.value is False:
        return facts
    kwargs = [f"{name}_kwargs" for name in names]
    reentrant = arguments.given(*(f"{name}.use_reentrant" for name in kwargs))
    opaque = next((f for f in (arguments.given(name) for name in kwargs) if f is not None and not f.known), None)
    if reentrant is not None:
        facts["checkpointing.use_reentrant"] = derive(boolean, reentrant)
    elif opaque is not None:
        facts["checkpointing.use_reentrant"] = opaque
    else:
        # transformers 5.0: modeling_utils.gradient_checkpointing_enable switched to non-reentrant. TRL since 0.27 sets
        # it for older transformers too (sft_trainer.py, dpo_trainer.py, ...)
        modern = versions.at_least("transformers", "5.0")
        trl = arguments.package == "trl" and versions.at_least("trl", "0.27")
        where = versions.note("trl" if trl and not modern else "transformers")
        facts["checkpointing.use_reentrant"] = default(not (modern or trl), f"{where} default")
    offload = arguments.given(*(f"{name}.offload" for name in kwargs)) or arguments.given("activation_offloading")
    if offload is not None:
        facts["checkpointing.offload"] = derive(boolean, offload)
    every = arguments.given(*(f"{name}.every_n_layers" for name in kwargs))
    if every is not None:
        facts["checkpointing.layer_frequency"] = derive(integer, every)
        facts["checkpointing.mode"] = derive(lambda n: "selective_layer" if integer(n) > 1 else "full", every)
    return facts


def evaluation(arguments: Arguments) -> Facts:
    """Evaluation inside the training: on when the strategy is not `no` (`do_eval` alone evaluates nothing)."""
    strategy = arguments("eval_strategy", "evaluation_strategy")
    enabled = derive(lambda value: str(getattr(value, "value", value)).lower() not in ("no", "none", "false"), strategy)
    facts: Facts = {"eval.enabled": enabled}
    size = arguments.given("per_device_eval_batch_size", "per_gpu_eval_batch_size")
    if size is not None or not (enabled.known and enabled.value is False):
        facts["eval.batch_size"] = derive(integer, arguments("per_device_eval_batch_size", "per_gpu_eval_batch_size"))
    return facts


def _compile(arguments: Arguments) -> Fact:
    implied = arguments.given("torch_compile_backend", "torch_compile_mode")
    switch = arguments("torch_compile")
    return derive(lambda _: True, implied) if implied is not None and not _on(switch) else derive(boolean, switch)


def _logits(arguments: Arguments) -> Fact:
    """Liger's fused linear cross entropy never materialises the logits."""
    kernels = arguments("use_liger_kernel", "use_liger")
    off = arguments.given("liger_kernel_config.fused_linear_cross_entropy")
    if not kernels.known and kernels.reason.endswith(arguments.versions.note(arguments.package)):
        return default("full", arguments.note())  # a version without the switch
    return derive(
        lambda on, fused: "fused" if boolean(on) and fused is not False else "full",
        kernels,
        off if off is not None else default(None, arguments.note()),
    )


_WRITE = {
    "batch.micro_batch_size": "per_device_train_batch_size",
    "batch.gradient_accumulation_steps": "gradient_accumulation_steps",
    "batch.auto_find": "auto_find_batch_size",
    "optimizer.name": "optim",
    "checkpointing.enabled": "gradient_checkpointing",
    "checkpointing.use_reentrant": "gradient_checkpointing_kwargs.use_reentrant",
    "eval.batch_size": "per_device_eval_batch_size",
    "eval.accumulation_steps": "eval_accumulation_steps",
    "compile": "torch_compile",
    "compile.mode": "torch_compile_mode",
    "parallel.find_unused_parameters": "ddp_find_unused_parameters",
    "parallel.static_graph": "ddp_static_graph",
    "parallel.sync_each_batch": "accelerator_config.gradient_accumulation_kwargs.sync_each_batch",
    "parallel.reshard_after_forward": "fsdp_config.reshard_after_forward",
}
"""Canonical key -> argument of every version (`gradient_checkpointing` stays an alias until transformers 6)."""


def write(key: str, value: Any) -> list[tuple[str, Any]] | None:
    """Canonical -> argument and value; None where `TrainingArguments` cannot say it."""
    if key in _WRITE:
        return [(_WRITE[key], value)]
    if key == "precision":
        if value not in ("bf16-mixed", "fp16-mixed", "fp32"):
            return None
        return [("bf16", value == "bf16-mixed"), ("fp16", value == "fp16-mixed")]
    if key == "loss.logits" and value in ("fused", "full"):
        return [("use_liger_kernel", value == "fused")]
    if key == "eval.enabled" and value is False:
        return [("eval_strategy", "no")]
    if key in ("parallel.offload_params", "parallel.offload_optimizer") and value in ("cpu", "none"):
        return [("fsdp_config.cpu_offload", value == "cpu")]
    if key == "parallel.wrap_policy" and value == "transformer":
        return [("fsdp_config.auto_wrap_policy", "TRANSFORMER_BASED_WRAP")]
    if key == "parallel.fsdp_sharding" and value == "full_shard":
        return [("fsdp", "full_shard auto_wrap")]
    if key == "parallel.strategy" and value in ("fsdp1", "fsdp2"):
        return [("fsdp", "full_shard auto_wrap"), ("fsdp_config.version", int(str(value)[-1]))]
    return None


def alternatives(key: str, value: Any) -> list[list[tuple[str, Any]]]:
    """FSDP in the words of older versions (`fsdp: full_shard auto_wrap`)."""
    if key in ("parallel.offload_params", "parallel.offload_optimizer") and value == "cpu":
        return [[("fsdp", "full_shard auto_wrap offload")], [("fsdp", "full_shard offload")]]
    if key == "parallel.wrap_policy" and value == "transformer":
        return [[("fsdp", "full_shard auto_wrap")]]
    if key == "parallel.fsdp_sharding" and value == "full_shard":
        return [[("fsdp", "full_shard")], [("fsdp_config.reshard_after_forward", True)]]
    return []


__all__ = ["Arguments", "alternatives", "expanded", "fixed", "problems", "training_arguments", "write"]
