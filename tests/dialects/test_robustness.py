"""Whatever values a configuration holds, reading it gives facts, problems or errors: never a traceback, never a wrong type."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from memlint.dialects import read_config
from memlint.facts import Status
from memlint.facts.keys import KEYS, check
from memlint.project import Project
from memlint.source import Kind, Source

CONFIGS = sorted(
    path
    for path in (Path(__file__).resolve().parents[1] / "corpus" / "extraction" / "configs").glob("**/*")
    if path.suffix in (".yaml", ".yml", ".json") and path.name != "expected.yaml" and "TEMPLATE" not in path.name
)

STRANGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from(["", "auto", "none", "no", "1e-4", "${x}", "${batch_size}", "{{ x }}", "q_proj", "/etc/passwd",
                    "../x.json", "\u2028", "true"]),
    st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=5), st.lists(st.none(), max_size=2)), max_size=3),
    st.dictionaries(st.text("ab_.", max_size=4), st.one_of(st.none(), st.integers(), st.text(max_size=5)), max_size=3),
)  # fmt: skip


def load(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    return json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)


def mutated(content: Any, data: st.DataObject) -> Any:
    """The content with a few values replaced, at the top or one level down."""
    content = copy.deepcopy(content)
    for _ in range(data.draw(st.integers(1, 4))):
        key = data.draw(st.sampled_from(sorted(content, key=str)))
        inner = content[key]
        if isinstance(inner, dict) and inner and data.draw(st.booleans()):
            inner[data.draw(st.sampled_from(sorted(inner, key=str)))] = data.draw(STRANGE)
        else:
            content[key] = data.draw(STRANGE)
    return content


def text_of(path: Path, content: Any) -> str:
    return json.dumps(content) if path.suffix == ".json" else yaml.safe_dump(content, allow_unicode=True)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: "-".join(path.parts[-2:]))
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_strange_values_never_break_a_reader(path: Path, data: st.DataObject) -> None:
    content = load(path)
    if not isinstance(content, dict):
        return
    kind = Kind.JSON if path.suffix == ".json" else Kind.YAML
    source = Source(str(path), kind, text_of(path, mutated(content, data)))
    for run in read_config(source, Project(path.parent)).runs:
        for key, fact in run.facts.items():
            assert key in KEYS, key
            assert fact.values or (fact.status is Status.UNKNOWN and fact.reason), key
            assert None not in fact.values, key


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: "-".join(path.parts[-2:]))
def test_every_fact_of_the_corpus_is_in_the_schema(path: Path) -> None:
    kind = Kind.JSON if path.suffix == ".json" else Kind.YAML
    for run in read_config(Source(str(path), kind, path.read_text(encoding="utf-8")), Project(path.parent)).runs:
        for key, fact in run.facts.items():
            for value in fact.values:
                assert check(key, value) == value, key
