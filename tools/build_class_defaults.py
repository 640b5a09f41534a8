"""Write `memlint/models/data/class_defaults.tsv`: what each configuration class of transformers assumes when a key is absent.

    python tools/build_class_defaults.py            # needs transformers (no torch); the version is written into the file

One line per `model_type`, sorted: the type, a tab, a JSON object of

    defaults   key -> value as the class builds it; a nested configuration that equals its own class's defaults is only
               {"model_type": ...}
    names      standard name -> native name (`attribute_map`), e.g. {"hidden_size": "n_embd"}
    derived    key -> how the class computes it from other keys when it is absent (see `memlint/models/derive.py`)

and one line per configuration class: `=LlamaConfig`, a tab, its `model_type` as a JSON string.

A key whose value follows from others cannot be a default: `head_dim` of a Llama with `hidden_size` 2048 is not 128. Such
keys are found by doubling every integer of the default configuration and looking at what else changes; the rule is the
first candidate that reproduces every one of these configurations. A key for which no candidate does is left out.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from memlint.models.derive import RULES  # noqa: E402

TARGET = ROOT / "memlint/models/data/class_defaults.tsv"
NO_BEARING = re.compile(
    r"_tokens?_(id|index)|token_(id|index|ids)$|^(dtype|torch_dtype)$|eps$|epsilon|initializer|init_|_init|rope|theta|loss|"
    r"aux_|_coef|mask_(time|feature)|transformers_version|id2label|label2id|problem_type|architectures|"
    r"output_(hidden|attentions|router)|return_dict|_name_or_path|chunk_size_feed_forward|generation|task_specific|prefix|"
    r"use_cache|pretraining_tp|beta|gamma|num_beams|norm_topk_prob|jitter|temperature|(mean|std)$|scaling_factor|"
    r"^(dense_act_fn|is_gated_act)$"
)
"""Keys with no bearing on memory: token ids, initialisation, rotary scaling, loss weights, generation; T5's two copies of
`feed_forward_proj`."""
KEEP = {"qk_rope_head_dim", "no_rope_layers", "no_rope_layer_interval"}


def wanted(key: str, value: Any) -> bool:
    """Whether a key can change what a training step allocates."""
    if key in KEEP:
        return True
    if key == "is_encoder_decoder":
        return bool(value)
    return not NO_BEARING.search(key) and isinstance(value, (bool, int, float, str, list, dict, type(None)))


def samples(cls: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The default configuration, then for each integer of it two with that key changed (the key is named)."""
    first = cls().to_dict()
    yield "", first
    for key, value in first.items():
        if isinstance(value, int) and not isinstance(value, bool) and value > 0 and wanted(key, value):
            for changed in (value * 2, value + 1):
                try:
                    yield key, cls(**{key: changed}).to_dict()
                except Exception:  # a validator of the class refuses the combination
                    continue


def derived(key: str, made: list[dict[str, Any]], causes: set[str]) -> list[Any] | None:
    """The first rule that gives the key in every configuration; `causes` are the keys that were seen to change it."""
    scalars = [name for name in made[0] if name in causes]
    value = made[0][key]
    candidates: list[list[Any]] = []
    if isinstance(value, list) and value:
        kinds = list(dict.fromkeys(value))
        pairs = list(itertools.permutations(kinds, 2)) if len(kinds) == 2 else []
        counts = [n for n in ("num_hidden_layers", "num_layers", "n_layer", "depth") if n in made[0]][:1]
        for count in counts:
            candidates += [["every", count, name, *pair] for name in scalars for pair in pairs]
            candidates += [["first", count, name, *pair] for name in scalars for pair in pairs]
            candidates += [["fill", count, kind] for kind in kinds if len(kinds) == 1]
            candidates += [["cycle", count, value[:period]] for period in range(2, min(9, len(value)))]
    elif isinstance(value, int):
        candidates += [["copy", name] for name in scalars]
        candidates += [["times", name, n] for name in scalars for n in (2, 3, 4)]
        candidates += [["quotient", a, b] for a, b in itertools.permutations(scalars, 2)]
        candidates += [["sum", a, b] for a, b in itertools.combinations(scalars, 2)]
        candidates += [["product", a, b] for a, b in itertools.combinations(scalars, 2)]
        candidates += [["ceil", name, n] for name in scalars for n in (2, 8, 16)]
        candidates += [["product_quotient", a, b, c] for a, b, c in itertools.permutations(scalars, 3)]
    for rule in candidates:
        try:
            if all(RULES[rule[0]](config, *rule[1:]) == config[key] for config in made):
                return rule
        except (TypeError, KeyError, ZeroDivisionError):
            continue
    return None


def describe(cls: Any, known: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One class: its constant defaults, its native names, its derived keys."""
    made = list(samples(cls))
    first = made[0][1]
    constant: dict[str, Any] = {}
    rules: dict[str, Any] = {}
    for key, value in first.items():
        if key == "model_type" or not wanted(key, value):
            continue
        causes = {changed for changed, config in made if changed != key and config.get(key) != value}
        if not causes or isinstance(value, dict):
            constant[key] = nested(value, known)
        elif rule := derived(key, [config for changed, config in made if changed != key], causes):
            rules[key] = rule
    share = (first.get("rope_parameters") or {}).get("partial_rotary_factor")
    if isinstance(share, (int, float)) and share != 1:
        constant["partial_rotary_factor"] = share  # rotary settings have no other bearing on memory
    described = {"defaults": constant}
    if names := {k: v for k, v in cls.attribute_map.items() if k != v}:
        described["names"] = names
    if rules:
        described["derived"] = rules
    return described


def nested(value: Any, known: dict[str, dict[str, Any]]) -> Any:
    """A value as stored: a sub-configuration keeps only what differs from its own class's defaults."""
    if not isinstance(value, dict):
        return value
    kind = value.get("model_type")
    base = known.get(kind, {})
    kept = {k: nested(v, known) for k, v in value.items() if k != "model_type" and wanted(str(k), v) and base.get(k) != v}
    return {"model_type": kind, **kept} if kind else kept


def main() -> None:
    """Write the table."""
    transformers.logging.set_verbosity_error()
    classes: dict[str, Any] = {}
    defaults: dict[str, dict[str, Any]] = {}
    for kind in CONFIG_MAPPING:
        try:
            cls = CONFIG_MAPPING[kind]
            defaults[kind] = cls().to_dict()
            classes[kind] = cls
        except Exception as error:
            print(f"{kind}: has no default configuration ({str(error)[:60]})", file=sys.stderr)
    lines = [
        f"{kind}\t{json.dumps(describe(classes[kind], defaults), separators=(',', ':'), ensure_ascii=True)}"
        for kind in sorted(classes)
    ]
    by_class = {cls.__name__: kind for kind, cls in sorted(classes.items(), reverse=True)}
    by_class |= {cls.__name__: cls.model_type for cls in classes.values() if cls.model_type in classes}
    lines = [f"={name}\t{json.dumps(kind)}" for name, kind in sorted(by_class.items())] + lines
    header = f"#\ttransformers {transformers.__version__}"
    TARGET.write_text("\n".join([header, *lines]) + "\n", encoding="ascii", newline="\n")
    print(f"{len(classes)} model types, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
