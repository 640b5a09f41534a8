"""Whatever is thrown at it: one clear line, the right exit code, never a traceback (the fixture checks that)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conversation import ROOT, Done, Memlint

COMMANDS = ("check", "estimate", "facts")


def only_line(text: str) -> str:
    (line,) = text.splitlines()
    return line


@pytest.mark.parametrize("command", COMMANDS)
def test_missing_path(memlint: Memlint, command: str) -> None:
    done = memlint(command, "nowhere.py")
    assert (done.code, done.out) == (2, "")
    assert only_line(done.err) == "memlint: nowhere.py: no such file or directory"


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_gpu_with_the_nearest_name(memlint: Memlint, command: str) -> None:
    done = memlint(command, "--gpu", "rtx-4091", ".")
    assert done.code == 2
    assert only_line(done.err).startswith("memlint: unknown GPU 'rtx-4091'; did you mean GeForce RTX 4090?")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "--format", "sarfi", "."], "unknown format 'sarfi'; did you mean sarif?"),
        (["check", "--format", "sarif=", "."], "names no file"),
        (["check", "--gpus", "0", "."], "expected a whole number of at least 1, got '0'"),
        (["check", "--set", "batch.micro_batchsize=4", "."], "did you mean 'batch.micro_batch_size'?"),
        (["check", "--set", "batch.micro_batch_size=four", "."], "batch.micro_batch_size takes"),
        (["check", "--set", "nonsense", "."], "expected key=value"),
        (["check", "--select", "MEM999", "."], "no rule is called 'MEM999'"),
        (["check", "--frobnicate", "."], "unrecognized arguments: --frobnicate (see memlint check --help)"),
        (["check", "--stdin-filename", "x.py", "."], "--stdin-filename goes with - as the path"),
        (["check", "-", "--stdin-filename", "x.txt"], "not a name of a file that memlint reads"),
        (["check", "--config", "gone.toml", "."], "no such configuration file"),
        (["check", "--since", "HEAD", "."], "git diff: "),
        (["rule", "MEM999"], "no rule is called 'MEM999'"),
        (["rule", "does-not-fix"], "did you mean does-not-fit?"),
        (["gpus", "9999"], "unknown GPU '9999'"),
        (["models", "no-such-model-at-all"], "no model matches 'no-such-model-at-all'"),
        (["config", "show", "gone.yaml"], "gone.yaml: no such file or directory"),
        (["baseline", "erase"], "invalid choice: 'erase'"),
        (["estimate"], "the following arguments are required: PATH"),
        (["check", "--format", "json=no/such/folder/x.json", "a.yaml"], "cannot write no/such/folder/x.json"),
    ],
)
def test_wrong_usage_is_one_line(memlint: Memlint, tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "a.yaml").write_text("just: a file\n", encoding="utf-8")
    done = memlint(*arguments)
    assert (done.code, done.out) == (2, "")
    assert message in only_line(done.err)


NAMED: dict[str, tuple[str, bytes, str]] = {
    "syntax error": ("train.py", b"from transformers import Trainer\nTrainer(args=(\n", "train.py:2"),
    "binary": ("train.yaml", b"\x00\x01\x02" * 100, "train.yaml:1:1: binary file"),
    "not utf-8": ("train.yaml", b"base_model: caf\xe9\nmicro_batch_size: 1\n", "train.yaml:1:1: not valid UTF-8 text"),
    "broken yaml": ("train.yaml", b"base_model: [gpt2\nmicro_batch_size: 1\n", "train.yaml:"),
    "broken yaml of something else": ("bad.yaml", b"a: [1\nb: 2\n", "bad.yaml:"),
    "syntax error in something else": ("bad.py", b"def f(:\n", "bad.py:1"),
    "broken json": ("ds_config.json", b'{"train_micro_batch_size_per_gpu": 1,, }', "ds_config.json:1"),
    "other kind": ("notes.txt", b"hello\n", "notes.txt:1:1: not a file that memlint reads"),
}


@pytest.mark.parametrize("case", NAMED)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_unreadable_file_that_was_named(memlint: Memlint, tmp_path: Path, case: str, command: str) -> None:
    name, content, message = NAMED[case]
    (tmp_path / name).write_bytes(content)
    done = memlint(command, name)
    assert done.code == 2
    (line,) = [line for line in (done.out + done.err).splitlines() if line.startswith("error")]
    assert message in line


def test_a_pipe_is_not_waited_for(memlint: Memlint, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.py")
    done = memlint("check", "train.py")
    assert done.code == 2
    assert "train.py:1:1: not a regular file" in done.out


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f'cd "{gone}" && rmdir "{gone}" && exec "{sys.executable}" -m memlint check /dev/null'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stdout) == (2, "")
    assert only_line(done.stderr) == "memlint: the folder that memlint was started in no longer exists"


CELLS = {
    "all Python": ["from trl import SFTTrainer"],
    "a magic without its sign, alone in its cell": ["pip install trl", "from trl import SFTTrainer"],
    "shell text": ["cd /content\nexport A=1\naccelerate launch train.py", "from trl import SFTTrainer"],
    "prose": ["Then we train the model:", "from trl import SFTTrainer"],
}


@pytest.mark.parametrize(("case", "read"), [(case, case in list(CELLS)[:2]) for case in CELLS])
def test_a_notebook_with_cells_that_are_no_python_is_read_without_them(
    memlint: Memlint, tmp_path: Path, case: str, read: bool
) -> None:
    cells = [{"cell_type": "code", "source": text} for text in CELLS[case]]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}), encoding="utf-8")
    done = memlint("check", "a.ipynb")
    assert (done.code, done.err) == (0, "")
    assert ("MEM202" in done.out) is not read


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["empty.py", "empty.yaml", "empty.json", "empty.sh", "empty.ipynb"])
def test_an_empty_file_is_no_training_run(memlint: Memlint, tmp_path: Path, command: str, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    done = memlint(command, name)
    # An empty notebook is not JSON; the others are empty programs and documents.
    assert done.code == (2 if name.endswith("ipynb") else 0)
    assert done.err == ""


def test_a_folder_without_configs(memlint: Memlint, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    done = memlint("check", "folder")
    assert (done.code, done.err) == (0, "")
    note, empty, summary = done.out.splitlines()
    assert note == "note: nothing to look at: no scripts, notebooks, launch scripts or configs in what was named"
    assert (empty, summary) == ("", "No findings in 0 files (0 training runs).")


def test_broken_files_met_in_a_folder_are_findings_only(memlint: Memlint, tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_bytes(b"base_model: [gpt2\nmicro_batch_size: 1\n")
    done = memlint("check", ".", "--format", "json")
    (finding,) = json.loads(done.out)["findings"]
    assert (done.code, finding["name"]) == (0, "unreadable-file")


def test_an_unknown_model_says_what_to_do(memlint: Memlint, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "base_model: acme/no-such-model-9x\nmicro_batch_size: 1\nsequence_len: 512\nadapter: lora\n", encoding="utf-8"
    )
    done = memlint("check", "a.yaml", "--gpu", "24GB")
    assert done.code == 0
    assert "acme/no-such-model-9x" in done.out
    assert "[tool.memlint.models]" in done.out


def test_a_broken_configuration_names_its_line(memlint: Memlint, tmp_path: Path) -> None:
    (tmp_path / "memlint.toml").write_text('select = ["MEM001"]\ngpuu = "t4"\n', encoding="utf-8")
    done = memlint("check", ".", cwd=tmp_path)
    # The folder is empty but for the configuration, so ask for it.
    (tmp_path / "a.yaml").write_text("a: 1\n", encoding="utf-8")
    done = memlint("check", ".")
    assert done.code == 2
    assert only_line(done.err) == "memlint: memlint.toml:2: unknown key 'gpuu'; did you mean 'gpu'?"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("deep.json", b"[" * 100_000),
        ("deep.yaml", b"[" * 100_000),
        ("deep.py", b"x = " + b"(" * 5_000 + b"1" + b")" * 5_000),
        ("bomb.yaml", b"a: &a [x,x]\n" + b"".join(b"%c: &%c [*%c,*%c]\n" % (i + 1, i + 1, i, i) for i in range(97, 120))),
        ("huge.yaml", b"base_model: x\n" + b"a: b\n" * 2_000_000),
        ("surrogate.json", b'{"train_micro_batch_size_per_gpu": "\\ud800", "zero_optimization": {"stage": 3}}'),
        ("long.py", b"x = '" + b"y" * 1_000_000 + b"'  # Trainer(\n"),
        ("nul.py", "x = 1\n\ufeff\u2028\x0c\n".encode()),
    ],
)
def test_pathological_files_end_quickly_and_quietly(memlint: Memlint, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    done = memlint("check", name)
    assert done.code in ((1,) if name == "surrogate.json" else (0, 2))  # a text where DeepSpeed takes a number is a finding
    assert "internal error" not in done.out + done.err


def test_a_hostile_name_and_value_cannot_draw_on_the_terminal(memlint: Memlint, tmp_path: Path) -> None:
    name = "a\x1b[31m\u202e.yaml"
    (tmp_path / name).write_text('base_model: "x\\e[2J"\nmicro_batch_size: 1\nadapter: lora\n', encoding="utf-8")
    for command in COMMANDS:
        done = memlint(command, name)
        assert "\x1b" not in done.out + done.err
        assert "\u202e" not in done.out + done.err


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "memlint", "rule", "--all"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""


def test_ctrl_c_is_one_line(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "memlint", "check", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # a shell's background jobs ignore it, and so do their children
    )
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"memlint: interrupted\n")


def test_an_internal_error_is_one_line_and_asks_for_a_report(memlint: Memlint, tmp_path: Path) -> None:
    broken = tmp_path / "sitecustomize.py"
    broken.write_text("import memlint.report\ndel memlint.report.FORMATS\n", encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done: Done = memlint("check", ".", env={"PYTHONPATH": path})
    assert done.code == 2
    line = only_line(done.err)
    assert line.startswith("memlint: internal error: ImportError")
    assert "MEMLINT_DEBUG=1" in line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_output_that_cannot_be_written_is_said_in_a_line(tmp_path: Path) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "memlint", "gpus"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    assert (done.returncode, done.stderr) == (2, "memlint: the output cannot be written: no space is left\n")
