"""Edits and the writing of files: bytes are compared with bytes written out by hand."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlint.fixes.edit import Edit, WriteError, apply, between, diff, overlap, write
from memlint.source import Kind, Places, Source, Span, read

LINES = st.lists(st.text(alphabet="ab #é\t", max_size=6), max_size=8)


def test_edits_apply_in_any_order() -> None:
    edits = [Edit("x", 4, 5, "DD"), Edit("x", 0, 1, ""), Edit("x", 5, 5, "!")]
    assert apply("abc d e", edits) == "bc DD! e"
    assert apply("abc d e", reversed(edits)) == "bc DD! e"


@pytest.mark.parametrize(
    "edits",
    [
        [Edit("x", 0, 3, ""), Edit("x", 2, 4, "")],
        [Edit("x", 1, 1, "a"), Edit("x", 1, 1, "b")],
        [Edit("x", 2, 9, "")],
        [Edit("x", 3, 2, "")],
    ],
    ids=["overlapping", "two insertions at one place", "past the end", "backwards"],
)
def test_edits_that_cannot_be_applied(edits: list[Edit]) -> None:
    with pytest.raises(ValueError, match="overlap or lie outside"):
        apply("abcde", edits)


def test_edits_of_two_files_do_not_overlap() -> None:
    assert not overlap([Edit("a", 0, 5, ""), Edit("b", 2, 3, "")])


@given(LINES, LINES, st.sampled_from(["\n", "\r\n", "\r"]))
def test_between_leads_from_one_text_to_the_other(old: list[str], new: list[str], newline: str) -> None:
    before, after = newline.join(old), newline.join(new)
    edits = between("x", before, after)
    assert apply(before, edits) == after
    assert all(edit.start == 0 or before[edit.start - 1] in "\r\n" for edit in edits if edit.start < len(before))


@given(st.text(alphabet="ab\r\n é", max_size=40), st.integers(0, 40))
def test_places_go_there_and_back(text: str, offset: int) -> None:
    places = Places(text)
    offset = min(offset, len(text))
    line, column = places.place(offset)
    assert places.offset(line, column) == offset


def test_the_span_of_an_edit() -> None:
    assert Edit("x", 3, 5, "").span("ab\ncdé\n") == Span("x", 2, 1, 2, 3)


def test_diff_of_a_file_without_a_last_newline() -> None:
    no_end = "\\ No newline at end of file\n"
    expected = f"--- a/dir/x.yaml\n+++ b/dir/x.yaml\n@@ -1,2 +1,2 @@\n a: 1\n-b: 2\n{no_end}+b: 3\n{no_end}"
    assert diff(Source("dir/x.yaml", Kind.YAML, "a: 1\nb: 2"), "a: 1\nb: 3") == expected


ENCODINGS = {
    "utf-8": ("x.yaml", "é: 1\n".encode(), "é: 2\n".encode()),
    "utf-8 with BOM": ("x.yaml", b"\xef\xbb\xbfa: 1\r\n", b"\xef\xbb\xbfa: 2\r\n"),
    "utf-16 little endian": ("x.yaml", b"\xff\xfea\x00:\x00 \x001\x00", b"\xff\xfea\x00:\x00 \x002\x00"),
    "utf-16 big endian": ("x.yaml", b"\xfe\xff\x00a\x00:\x00 \x001", b"\xfe\xff\x00a\x00:\x00 \x002"),
    "coding cookie": (
        "x.py",
        b"# -*- coding: latin-1 -*-\nname = '\xe9'\nb = 1\n",
        b"# -*- coding: latin-1 -*-\nname = '\xe9'\nb = 2\n",
    ),
    "coding cookie and BOM": ("x.py", b"\xef\xbb\xbf# coding: utf-8\nb = 1\n", b"\xef\xbb\xbf# coding: utf-8\nb = 2\n"),
}


@pytest.mark.parametrize(("name", "old", "new"), ENCODINGS.values(), ids=ENCODINGS)
def test_writing_keeps_encoding_bom_and_line_ends(tmp_path: Path, name: str, old: bytes, new: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(old)
    text = read(str(path)).text
    write({str(path): (text, text.replace("1\n", "2\n") if "coding" in text else text.replace("1", "2"))})
    assert path.read_bytes() == new
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_writing_keeps_the_mode_and_a_link(tmp_path: Path) -> None:
    real = tmp_path / "run.sh"
    real.write_text("a\n")
    real.chmod(0o754)
    link = tmp_path / "link.sh"
    link.symlink_to(real)
    write({str(link): ("a\n", "b\n")})
    assert real.read_text() == "b\n"
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o754


def test_a_read_only_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a\n")
    path.chmod(0o444)
    with pytest.raises(WriteError, match=r"x\.yaml: cannot be fixed: the file is read-only"):
        write({str(path): ("a\n", "b\n")})
    assert path.read_text() == "a\n"


def test_a_file_that_changed_meanwhile_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("mine\n")
    with pytest.raises(WriteError, match="changed since it was read"):
        write({str(path): ("a\n", "b\n")})
    assert path.read_text() == "mine\n"


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="No such file"):
        write({str(tmp_path / "x.yaml"): ("a\n", "b\n")})


def test_text_that_the_encoding_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_bytes(b"# coding: ascii\na = 1\n")
    with pytest.raises(WriteError, match="encoding ascii cannot hold"):
        write({str(path): ("# coding: ascii\na = 1\n", "# coding: ascii\na = 'é'\n")})
    assert path.read_bytes() == b"# coding: ascii\na = 1\n"


def test_when_one_file_cannot_be_replaced_none_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("a\n")
    second.write_text("a\n")
    replace = os.replace

    def locked(source: str | Path, target: str | Path) -> None:
        if Path(target) == second:
            raise PermissionError(13, "The process cannot access the file")
        replace(source, target)

    monkeypatch.setattr(os, "replace", locked)
    with pytest.raises(WriteError, match=r"b\.yaml: cannot be fixed: The process cannot access"):
        write({str(first): ("a\n", "b\n"), str(second): ("a\n", "b\n")})
    assert (first.read_text(), second.read_text()) == ("a\n", "a\n")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.yaml", "b.yaml"]
