"""Every way in which a training run is written down, and the door to the configuration files among them.

A dialect is a small module with `NAME`, `recognise`, `facts` and `write`; the argument dialects (`hf_arguments`, `trl`,
`peft`, ...) have no files of their own and are shared with the readers of Python and shell.
"""

from __future__ import annotations

import re
from importlib import import_module

from memlint.dialects.accepted import unknown_keys, wrong_values
from memlint.dialects.context import Context, Dialect, Links
from memlint.dialects.settle import settle
from memlint.facts import Extraction, Fact, Site, TrainingRun
from memlint.read.document import Document, MappingNode, flatten
from memlint.read.interpolate import interpolated, placeholders
from memlint.source import Kind, ReadError, Source, Span
from memlint.typed import Any

CONFIGURATIONS: dict[str, frozenset[str]] = {
    "run_yaml": frozenset({"schema"}),
    "axolotl": frozenset({"base_model"}),
    "torchtune": frozenset({"model", "tokenizer", "checkpointer"}),
    "unsloth_studio": frozenset({"training"}),
    "nemo": frozenset({"trainer", "strategy"}),
    "megatron_bridge": frozenset({"train"}),
    "megatron_yaml": frozenset({"MODEL_ARGS"}),
    "litgpt": frozenset({"checkpoint_dir", "model_name", "train"}),
    "verl_ppo": frozenset({"actor_rollout_ref", "defaults"}),
    "verl": frozenset({"data"}),
    "llama_factory": frozenset({"model_name_or_path", "finetuning_type", "stage", "dist_config", "peft_config", "cutoff_len"}),
    "llama_factory_v1": frozenset({"dist_config", "peft_config", "quant_config", "cutoff_len", "kernel_config"}),
    "ms_swift_ray": frozenset({"rlhf_type"}),
    "ms_swift": frozenset({"tuner_type", "train_type", "sft_type", "model", "model_type"}),
    "accelerate": frozenset({"distributed_type", "compute_environment", "num_processes", "fsdp_config", "deepspeed_config"}),
    "deepspeed": frozenset({"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size",
    "zero_allow_untested_optimizer", "steps_per_print"}),
    "open_instruct": frozenset({"model_name_or_path"}),
    "ludwig": frozenset({"input_features"}),
    "lightning_cli": frozenset({"trainer"}),
    "trl_yaml": frozenset({"model_name_or_path", "per_device_train_batch_size"}),
}  # fmt: skip
"""Dialect module -> top-level keys of which a document of it has at least one; in the order in which they are asked."""

IN_TOML = ("torchtitan", "sd_scripts")
"""The dialects that are written in TOML."""

MODULES = {
    "llamafactory": "llama_factory", "transformers": "hf_arguments", "hf": "hf_arguments", "trl-yaml": "trl_yaml",
    "run": "run_yaml",
}  # fmt: skip
"""Other names under which a dialect module is known."""

_LIKELY = (
    r"memlint\.run\.v1|base_model|_component_|micro_batch_size|global_batch_size|actor_rollout_ref|ppo_\w*trainer|train_batch_size"
    r"|model_name_or_path|(?:dist|peft|quant|kernel|init|optim)_config|tuner_type|train_type|sft_type|torch_dtype"
    r"|distributed_type|compute_environment|zero_optimization|zero_allow_untested_optimizer|MegatronStrategy|seed_everything"
    r"|max_seq_length|class_path|train_iters|seq_len|MODEL_ARGS|steps_per_print"
)
"""Words of which every configuration has at least one: a file without them is not parsed at all."""

MAX_CHARACTERS = 1_000_000
"""A longer text is data, not a configuration."""


def by_name(name: str) -> Any:
    """The dialect module of a name (`axolotl`, `deepspeed`, `trl`, `hf_arguments`, ...). Raises `LookupError`."""
    module = MODULES.get(name, name.replace("-", "_"))
    if not re.fullmatch(r"[a-z0-9_]+", module):
        raise LookupError(f"no dialect {name!r}")
    try:
        return import_module(f"memlint.dialects.{module}")
    except ModuleNotFoundError:
        raise LookupError(f"no dialect {name!r}") from None


def recognise(document: Document) -> tuple[Dialect, str] | None:
    """The dialect of a document with the reason, or None when it is no training configuration."""
    keys = document.keys
    asked = IN_TOML if document.path.endswith(".toml") else [name for name, markers in CONFIGURATIONS.items() if keys & markers]
    for name in asked:
        dialect: Dialect = by_name(name)
        reason = dialect.recognise(document)
        if reason is not None:
            return dialect, reason
    return None


def read_config(source: Source, project: Links | None = None) -> Extraction:
    """The training runs of a YAML, JSON or TOML file, one a document; nothing for a file that is something else.

    A file that does not parse is an error only when its text looks like a training configuration.
    """
    text = source.text
    if len(text) > MAX_CHARACTERS or not re.search(_LIKELY, text) or (source.kind is Kind.JSON and "{" not in text[:1000]):
        return Extraction()
    try:
        documents = _documents(source)
    except ReadError as error:
        return Extraction(errors=(error,))
    runs: list[TrainingRun] = []
    errors: list[ReadError] = []
    for document in documents:
        found = recognise(document) if isinstance(document.root, MappingNode) else None
        if found is None:
            continue
        try:
            runs.append(read_document(document, *found, project))
        except ReadError as error:
            errors.append(error)
    return Extraction(tuple(runs), tuple(errors))


def read_document(document: Document, dialect: Dialect, reason: str, project: Links | None = None) -> TrainingRun:
    """The run of a document whose dialect is known. Raises `ReadError` when it expands to too much."""
    from memlint.versions import versions_for

    pinned = getattr(project, "pinned", None) or {}
    context = Context(versions_for(document.path, pinned), document.path, project)
    native = read_native(document, dialect, context)
    facts = dialect.facts(native, context)
    pinned_versions = context.versions.fact()
    if pinned_versions is not None:
        facts["framework.versions"] = pinned_versions
    if not (dialect.FRAGMENT or getattr(dialect, "CANONICAL", False)):  # what follows from a part waits for the rest
        facts = settle(facts)
    site = Site(dialect.NAME, kind_of_document(document.path), document.root.span)
    return TrainingRun(
        path=document.path,
        span=_start(document),
        facts=facts,
        dialect=dialect.NAME,
        recognised_by=reason,
        sites=(site, *context.sites),
        problems=(*document.problems, *unknown_keys(document, dialect.NAME), *wrong_values(facts), *context.problems),
        files=(document.path, *context.files),
    )


def read_native(document: Document, dialect: Dialect, context: Context) -> dict[str, Fact]:
    """The flattened document; where the framework is configured by OmegaConf, composed and with `${...}` resolved."""
    if not dialect.INTERPOLATES:
        return placeholders(flatten(document))
    if "defaults" in document.keys:
        from memlint.dialects.hydra import composed

        return interpolated(composed(document, context))
    return interpolated(flatten(document))


def _start(document: Document) -> Span:
    """The first key: where a finding about the whole run points."""
    entries = document.mapping.entries
    own = [entry.key_span for entry in entries if not entry.inherited]
    return min(own) if own else document.root.span


def kind_of_document(path: str) -> str:
    """The `Site.kind` of a configuration file."""
    return "json" if path.endswith((".json", ".conf")) else "toml" if path.endswith(".toml") else "yaml"


def _documents(source: Source) -> tuple[Document, ...]:
    if source.kind is Kind.TOML:
        from memlint.read.tomldoc import read_toml

        return (read_toml(source),)
    if source.kind is Kind.JSON:
        from memlint.read.jsondoc import read_json

        return (read_json(source),)
    from memlint.read.yamldoc import read_yaml

    return read_yaml(source)
