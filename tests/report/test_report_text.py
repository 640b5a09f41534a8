"""Escaping, sizes, bars and excerpts."""

from __future__ import annotations

import io

import pytest

from memlint.report.excerpt import excerpts
from memlint.report.style import Style, for_stream
from memlint.report.text import code, github_data, github_property, markdown, parameters, plain, size, xml
from memlint.source import Span


def test_control_characters_become_visible() -> None:
    assert plain("a\x1b[31mb\nc\u202ed\ufeff") == "a\\x1b[31mb\\nc\\u202ed\\ufeff"


def test_a_code_span_survives_backticks() -> None:
    assert code("a`b") == "``a`b``"
    assert code("`") == "`` ` ``"


def test_markdown_has_no_html_mentions_or_table_cells() -> None:
    assert markdown("<i>@me|x_y") == "&lt;i&gt;\\@me\\|x\\_y"


def test_github_escapes_percent_first() -> None:
    assert github_data("50%\n") == "50%25%0A"
    assert github_property("a:b,c") == "a%3Ab%2Cc"


def test_xml_keeps_only_what_xml_can_hold() -> None:
    assert xml('<a "b" & \x00>') == "&lt;a &quot;b&quot; &amp; \\x00&gt;"


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 MiB"), (512, "512 B"), (3 << 20, "3 MiB"), (1 << 30, "1.0 GiB"), (28_000_000_000, "26.1 GiB")],
)
def test_sizes(count: int, shown: str) -> None:
    assert size(count) == shown


def test_parameter_counts() -> None:
    assert [parameters(n) for n in (6_738_415_616, 354_823_168, 999)] == ["6.74B", "355M", "999"]


def test_a_stacked_bar_is_as_long_as_its_total() -> None:
    # Three thirds of 10 columns: rounding each part alone would give 9.
    assert Style().stack([1, 1, 1], 3, 10) == "███▓▓▓▓▒▒▒"
    assert Style(blocks=False).stack([2, 2], 4, 4) == "##=="


def excerpt(span: Span, lines: list[str], *labels: tuple[Span, str]) -> list[str]:
    return excerpts(span, labels, lambda _: lines, Style())


def test_carets_stand_under_wide_characters() -> None:
    line, carets = excerpt(Span("a.py", 1, 8, 1, 9), ["名前 = 'x'"])[2:4]
    # Two wide characters take two columns each, so the quote's column is two further right than its index.
    assert carets.index("^") - line.index("名") == 8 - 1 + 2


def test_a_place_that_does_not_exist_is_still_named() -> None:
    assert excerpt(Span("empty.yaml", 1, 1), [""])[0] == " --> empty.yaml:1:1"
    assert excerpt(Span("gone.yaml", 9, 1), []) == [" --> gone.yaml:9:1"]


def test_a_very_long_line_is_cut_around_the_place() -> None:
    line = "x" * 5000 + "HERE" + "y" * 5000
    shown = excerpt(Span("a.json", 1, 5001, 1, 5005), [line])
    assert any("HERE" in row for row in shown)
    assert max(map(len, shown)) <= 100


def test_labels_of_one_file_share_an_excerpt_and_a_gutter() -> None:
    lines = [f"key{n}: {n}" for n in range(1, 13)]
    shown = excerpt(Span("a.yaml", 12, 8, 12, 10), lines, (Span("a.yaml", 3, 1, 3, 5), "from here"))
    assert shown == [
        "  --> a.yaml:12:8",
        "   |",
        " 3 | key3: 3",
        "   | ^^^^ from here",
        "...",
        "12 | key12: 12",
        "   |        ^^",
    ]


def test_notebook_places_name_their_cell() -> None:
    assert excerpt(Span("nb.ipynb", 2, 1, cell=3), ["a", "b"])[0] == " --> nb.ipynb:cell 3:2:1"


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "colour"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
        (io.StringIO(), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colour_only_where_it_is_wanted(stream: io.StringIO, environ: dict[str, str], colour: bool) -> None:
    assert for_stream(stream, environ).colour is colour
