"""What an installed transformers makes of a configuration: the optional extra `[hf]`.

Asked for with `--hf` only (`memlint models`, `memlint estimate`), never by a check: to load transformers takes seconds. A model is
built on the meta device, from a class that is part of transformers; weights are never read, code of a repository never runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec

from memlint.models.config import SYNONYMS, from_config
from memlint.models.lookup import Lookup
from memlint.typed import Any, NamedTuple

MAX_LAYERS = 1024
"""No model is deeper; a configuration that says so is not built."""

MAPPINGS = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_MAPPING_NAMES",
)
"""The class that a model type is trained as: the first mapping of `models/auto/modeling_auto.py` that has it. Decoders alone of
encoder-decoders, and encoders used as decoders, are among the causal ones; multimodal types are not in the first three."""


class NotInstalled(Exception):
    """transformers is not there to be asked, as a sentence for a person."""


class Counted(NamedTuple):
    """What only a built model tells."""

    params: int
    """Unique parameters: tied weights once."""
    linears: tuple[tuple[str, int, int, int], ...]
    """(leaf name, in features, out features, how many)."""
    stacked: tuple[tuple[Any, ...], ...]
    """Three-dimensional parameters (fused experts): (leaf name, *shape, how many)."""
    tied: bool
    """The output head shares the input embedding's weight."""


def asked(found: Lookup) -> Lookup:
    """The look-up with transformers' reading of its configuration; one that the catalogue has counted stays as it is.

    Raises `NotInstalled`.
    """
    architecture = found.architecture
    if architecture is None or architecture.params is not None or found.written is None:
        return found
    require()
    transformers = import_module("transformers")
    by = f"transformers {transformers.__version__}"
    try:
        config = read(transformers, found.written)
        if config is None:
            return found._replace(how=f"{found.how}; {by} does not know the type {architecture.model_type!r}")
        shape = from_config(native(config), architecture.name, f"{architecture.source}, read by {by}")
        if find_spec("torch") and (shape.layers or 0) <= MAX_LAYERS:
            counted = count(build(transformers, config, found.written.get("architectures")))
            shape = shape._replace(params=counted.params, linears=counted.linears, stacked=counted.stacked, tied=counted.tied)
    except Exception as error:  # a configuration that the class refuses
        return found._replace(how=f"{found.how}; {by} refuses it: {' '.join(str(error).split())[:120]}")
    exact = bool(shape.model_type and (shape.layers or shape.params)) and architecture.exact
    how = f"{found.how}, counted by {by}" if shape.params else f"{found.how}, read by {by} (no torch here to count parameters)"
    return found._replace(architecture=shape._replace(exact=exact), exact=exact, how=how)


def require() -> None:
    """Raise `NotInstalled` where transformers cannot be asked."""
    if not find_spec("transformers"):
        raise NotInstalled('transformers is not installed here: pip install "gpu-memlint[hf]"')


def read(transformers: Any, written: Mapping[str, Any]) -> Any:
    """The configuration object; None for a type of other code (which is not loaded)."""
    given = dict(written)
    kind = given.pop("model_type", None)
    return transformers.AutoConfig.for_model(kind, **given) if kind in transformers.CONFIG_MAPPING else None


def native(config: Any) -> dict[str, Any]:
    """A configuration object as a mapping, the usual names beside the class's own."""
    usual = {name for names in SYNONYMS.values() for name in names}
    own: dict[str, Any] = config.to_dict()
    return {name: getattr(config, name) for name in usual if name in config.attribute_map} | own


def build(transformers: Any, config: Any, named: Any = None) -> Any:
    """The model on the meta device: of the class that the configuration names, if transformers has it, else of the type's usual one."""
    torch = import_module("torch")
    cls = class_of(transformers, config.model_type, named)
    if cls is None:
        raise ValueError(f"no class builds {config.model_type}")
    with torch.device("meta"):
        model = cls(config)
    model.tie_weights()
    return model


def class_of(transformers: Any, kind: str, named: Any = None) -> Any:
    """The class of a model type: the named one(s) first; None when there is none."""
    automatic = import_module("transformers.models.auto.modeling_auto")
    names = [named] if isinstance(named, str) else list(named) if isinstance(named, (list, tuple)) else []
    for mapping in MAPPINGS:
        name = getattr(automatic, mapping).get(kind)
        names += [name] if isinstance(name, str) else list(name or ())
    bases = (import_module("transformers.modeling_utils").PreTrainedModel,)
    classes = (getattr(transformers, name, None) for name in names if isinstance(name, str))
    return next((cls for cls in classes if isinstance(cls, type) and issubclass(cls, bases)), None)


def count(model: Any) -> Counted:
    """The parameters of a built model."""
    torch = import_module("torch")
    linears: Counter[tuple[str, int, int]] = Counter()
    stacked: Counter[tuple[Any, ...]] = Counter()
    seen: set[int] = set()
    for name, module in model.named_modules():
        leaf = name.rpartition(".")[2]
        if isinstance(module, torch.nn.Linear):
            linears[leaf, module.in_features, module.out_features] += 1
        elif type(module).__name__ == "Conv1D":  # GPT-2's linear, its weight transposed
            linears[leaf, module.weight.shape[0], module.weight.shape[1]] += 1
        for key, parameter in module.named_parameters(recurse=False):
            if parameter.dim() == 3 and id(parameter) not in seen:
                seen.add(id(parameter))
                stacked[(key, *parameter.shape)] += 1
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    return Counted(
        sum(parameter.numel() for parameter in model.parameters()),
        tuple((*key, times) for key, times in sorted(linears.items())),
        tuple((*key, times) for key, times in sorted(stacked.items())),
        head is not None and head.weight is model.get_input_embeddings().weight,
    )
