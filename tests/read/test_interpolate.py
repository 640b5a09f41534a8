"""`${...}` as OmegaConf resolves it."""

from __future__ import annotations

from memlint.facts import Fact, Status
from memlint.read.document import flatten
from memlint.read.interpolate import interpolated, placeholders
from memlint.read.yamldoc import read_yaml
from memlint.source import Kind, Source


def resolved(text: str) -> dict[str, Fact]:
    (document,) = read_yaml(Source("c.yaml", Kind.YAML, text))
    return interpolated(flatten(document))


def test_a_whole_reference_keeps_the_type_and_the_place_where_it_is_written() -> None:
    facts = resolved("batch_size: 2\nval: ${batch_size}\n")
    assert facts["val"].value == 2
    assert [origin.span.line for origin in facts["val"].origin if origin.span] == [2, 1]


def test_references_inside_a_text_nested_and_relative_ones() -> None:
    facts = resolved("dir: /a\nx:\n  name: n\n  path: ${dir}/${.name}\n  up: ${..dir}\ny: ${x.path}\nl: [1, 2]\nz: ${l[1]}\n")
    assert [facts[key].value for key in ("x.path", "x.up", "y", "z")] == ["/a/n", "/a", "/a/n", 2]


def test_environment_and_select_resolvers() -> None:
    facts = resolved("a: ${oc.env:BS,8}\nb: ${oc.env:BS}\nc: ${oc.select:d,3}\ne: ${oc.select:f,3}\nf: 5\ng: ${oc.env:S,x}/y\n")
    assert (facts["a"].value, facts["a"].status) == (8, Status.DEFAULT)
    assert not facts["b"].known
    assert (facts["c"].value, facts["e"].value) == (3, 5)
    assert (facts["g"].value, facts["g"].status) == ("x/y", Status.DEFAULT)


def test_what_cannot_be_known_is_unknown_with_a_reason() -> None:
    facts = resolved("a: ${b}\nb: ${a}\nc: ${missing}\nd: ${eval:1+1}\ne: ${a b}\nf: x${missing}\n")
    assert [facts[key].known for key in "abcdef"] == [False] * 6
    assert all(facts[key].reason for key in "abcdef")


def test_placeholders_of_a_framework_that_resolves_nothing() -> None:
    (document,) = read_yaml(Source("c.yaml", Kind.YAML, "a: ${BS}\nb: $BS\nc: ${BS:-4}\nd: cost $5\ne: /x/${Y}\n"))
    facts = placeholders(flatten(document))
    assert [facts[key].known for key in "abcde"] == [False, False, False, True, True]
