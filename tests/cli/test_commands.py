"""Every command on the examples, and every option of `check`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conversation import EXAMPLES, Done, Memlint

Snapshot = Callable[[str, Done], None]

FITS = sorted(path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.glob("*/fits.*"))
DOES_NOT_FIT = sorted(path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.glob("*/does_not_fit.*"))


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A copy of the Axolotl example that does not fit."""
    return Path(shutil.copy(EXAMPLES / "axolotl" / "does_not_fit.yaml", tmp_path / "large.yaml"))


def codes(done: Done) -> list[str]:
    return [finding["code"] for finding in json.loads(done.out)["findings"]]


def test_there_is_a_pair_for_every_way_of_writing_a_job() -> None:
    assert len(FITS) == len(DOES_NOT_FIT) == 7


@pytest.mark.parametrize("path", FITS)
def test_examples_that_fit_are_clean(memlint: Memlint, path: str) -> None:
    done = memlint("check", path, "--fail-on", "warning", cwd=EXAMPLES)
    assert (done.code, done.err) == (0, ""), done.out
    assert "No findings in 1 file (1 training run)." in done.out


@pytest.mark.parametrize("path", DOES_NOT_FIT)
def test_examples_that_do_not_fit_fail(memlint: Memlint, path: str) -> None:
    done = memlint("check", path, "--format", "json", cwd=EXAMPLES)
    assert done.code == 1
    assert "MEM001" in codes(done)
    document = json.loads(done.out)
    assert document["errors"] == []
    assert document["summary"]["runs"] == 1


@pytest.mark.parametrize("path", [*FITS, *DOES_NOT_FIT])
def test_the_estimate_of_every_example_agrees_with_its_name(memlint: Memlint, path: str) -> None:
    done = memlint("estimate", path, "--format", "json", cwd=EXAMPLES)
    (run,) = json.loads(done.out)["runs"]
    assert (done.code, done.err) == (0, "")
    assert run["verdicts"][0]["verdict"] == ("fits" if "/fits" in path else "does_not_fit")
    assert bool(run["plan"]) == ("/fits" not in path)


def test_all_examples_at_once(memlint: Memlint, snapshot: Snapshot) -> None:
    snapshot("check-examples-concise", memlint("check", ".", "--format", "concise", cwd=EXAMPLES))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("check-full", ["axolotl/does_not_fit.yaml"]),
        ("check-clean", ["check", "axolotl/fits.yaml"]),
        ("check-statistics", ["check", "axolotl", "--statistics"]),
        ("check-diff", ["check", "axolotl/does_not_fit.yaml", "--diff"]),
        ("estimate-full", ["estimate", "trl_qlora/llama2_7b_24gb.py"]),
        ("estimate-does-not-fit", ["estimate", "axolotl/does_not_fit.yaml"]),
        ("estimate-markdown", ["estimate", "axolotl/does_not_fit.yaml", "--format", "markdown"]),
        ("facts-config", ["facts", "llama_factory/fits.yaml"]),
        ("facts-script", ["facts", "trl_qlora/fits.py"]),
        ("rule", ["rule", "MEM001"]),
        ("models", ["models", "llama-2-7b-hf"]),
        ("gpus", ["gpus", "a100-80gb"]),
        ("config-show", ["config", "show", "axolotl/fits.yaml"]),
        ("help", ["--help"]),
        ("help-check", ["check", "--help"]),
    ],
)
def test_conversations(memlint: Memlint, snapshot: Snapshot, name: str, arguments: list[str]) -> None:
    snapshot(name, memlint(*arguments, cwd=EXAMPLES, env={"COLUMNS": "100"}))


def test_estimate_json_is_estimate_v1(memlint: Memlint) -> None:
    done = memlint("estimate", "axolotl/fits.yaml", "hf_trainer/fits.py", "--format", "json", cwd=EXAMPLES)
    document = json.loads(done.out)
    assert document["schema"] == "memlint.estimate.v1"
    assert [run["path"] for run in document["runs"]] == ["axolotl/fits.yaml", "hf_trainer/fits.py"]
    for run in document["runs"]:
        assert {"path", "line", "facts", "estimate", "verdicts", "plan"} <= set(run)
        estimate = run["estimate"]
        for name in ("peak_allocated_bytes", "required_bytes", "peak_reserved_bytes", "device_bytes"):
            low, expected, high = (estimate[name][bound] for bound in ("low", "expected", "high"))
            assert 0 < low <= expected <= high
            assert isinstance(expected, int)
        assert estimate["peak_phase"] in {phase["phase"] for phase in estimate["timeline"]}
        # Components (without the context, which is no allocation) add up to what is allocated at the peak, but for the
        # unused ends of the allocator's blocks (below 1 MiB each).
        parts = sum(count for name, count in estimate["components"].items() if name != "context")
        assert parts == pytest.approx(estimate["peak_allocated_bytes"]["expected"], rel=0.06)


def test_facts_json_is_facts_v1(memlint: Memlint) -> None:
    done = memlint("facts", "axolotl/fits.yaml", "--format", "json", cwd=EXAMPLES)
    document = json.loads(done.out)
    assert (document["schema"], document["errors"]) == ("memlint.facts.v1", [])
    (run,) = document["runs"]
    fact = run["facts"]["batch.micro_batch_size"]
    assert (fact["value"], fact["status"]) == (1, "fixed")
    line = (EXAMPLES / "axolotl" / "fits.yaml").read_text(encoding="utf-8").split("\n").index("micro_batch_size: 1") + 1
    assert fact["origin"][0] == {"path": "axolotl/fits.yaml", "line": line, "column": 19, "note": fact["origin"][0]["note"]}


def test_errors_of_facts_are_in_the_json_with_exit_2(memlint: Memlint, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("base_model: [\nmicro_batch_size: 1\n", encoding="utf-8")
    done = memlint("facts", "a.yaml", "--format", "json")
    (error,) = json.loads(done.out)["errors"]
    assert done.code == 2
    assert set(error) == {"path", "line", "message"}


def test_the_command_line_wins_over_the_comment(memlint: Memlint, large: Path) -> None:
    done = memlint("check", "large.yaml", "--gpu", "h200", "--set", "batch.micro_batch_size=1", "--format", "json")
    assert (done.code, codes(done)) == (0, [])


def test_a_size_is_a_target(memlint: Memlint, large: Path) -> None:
    text = large.read_text(encoding="utf-8").replace("# memlint: gpu=24GB\n", "")
    large.write_text(text, encoding="utf-8")
    assert memlint("check", "large.yaml", "--gpu", "24GB").code == 1
    no_target = memlint("check", "large.yaml", "--format", "json")
    assert "MEM001" not in codes(no_target)
    (note,) = json.loads(no_target.out)["notes"]
    assert "no target card is named" in note


def test_the_nearest_configuration_names_the_target(memlint: Memlint, tmp_path: Path, large: Path) -> None:
    text = large.read_text(encoding="utf-8").replace("# memlint: gpu=24GB\n", "")
    large.write_text(text, encoding="utf-8")
    config = tmp_path / "pyproject.toml"
    config.write_text('[tool.memlint]\ngpu = "rtx-4090"\n\n[tool.memlint.per-path."big/**"]\ngpu = "h200"\n', encoding="utf-8")
    assert memlint("check", "large.yaml").code == 1
    (tmp_path / "big").mkdir()
    shutil.move(large, tmp_path / "big" / "large.yaml")
    done = memlint("check", "big", "--format", "json", "--set", "batch.micro_batch_size=1")
    assert (done.code, codes(done)) == (0, [])


def test_exit_codes(memlint: Memlint, large: Path) -> None:
    assert memlint("check", "large.yaml").code == 1
    assert memlint("large.yaml").code == 1
    assert memlint("check", "large.yaml", "--exit-zero").code == 0
    warning = ("check", "large.yaml", "--select", "MEM010")
    assert memlint(*warning).code == 0
    assert memlint(*warning, "--fail-on", "warning").code == 1


def test_select_and_ignore_take_codes_and_names(memlint: Memlint, large: Path) -> None:
    everything = set(codes(memlint("check", "large.yaml", "--format", "json")))
    assert {"MEM001", "MEM010"} <= everything
    assert codes(memlint("check", "large.yaml", "--format", "json", "--select", "does-not-fit")) == ["MEM001"]
    left = codes(memlint("check", "large.yaml", "--format", "json", "--ignore", "MEM001,checkpointing-off"))
    assert not {"MEM001", "MEM010"} & set(left)


def test_several_formats_at_once(memlint: Memlint, tmp_path: Path, large: Path) -> None:
    done = memlint("check", "large.yaml", "--format", "concise", "--format", "sarif=out.sarif", "--format", "junit=out.xml")
    assert done.code == 1
    assert "large.yaml:" in done.out.splitlines()[0]
    assert json.loads((tmp_path / "out.sarif").read_text(encoding="utf-8"))["version"] == "2.1.0"
    assert "<testsuites" in (tmp_path / "out.xml").read_text(encoding="utf-8")


def test_sarif_carries_the_edits_of_a_fix(memlint: Memlint, large: Path) -> None:
    document = json.loads(memlint("check", "large.yaml", "--format", "sarif").out)
    fixes = [fix for result in document["runs"][0]["results"] for fix in result.get("fixes", [])]
    inserted = [r["insertedContent"]["text"] for f in fixes for c in f["artifactChanges"] for r in c["replacements"]]
    assert any("gradient_checkpointing: true" in text for text in inserted)


def test_fix_changes_the_one_line_and_nothing_else(memlint: Memlint, large: Path) -> None:
    before = large.read_text(encoding="utf-8").splitlines()
    done = memlint("check", "large.yaml", "--fix")
    after = large.read_text(encoding="utf-8").splitlines()
    assert [line for line in after if line not in before] == ["gradient_checkpointing: true"]
    assert [line for line in before if line not in after] == []
    assert "fixed MEM010 large.yaml" in done.err
    again = memlint("check", "large.yaml", "--fix")
    assert large.read_text(encoding="utf-8").splitlines() == after
    assert "fixed" not in again.err


def test_diff_changes_nothing(memlint: Memlint, large: Path) -> None:
    before = large.read_bytes()
    done = memlint("check", "large.yaml", "--diff")
    assert (done.code, large.read_bytes()) == (1, before)
    assert "+gradient_checkpointing: true" in done.out.splitlines()


def test_unsafe_fixes_reach_a_run_that_fits(memlint: Memlint, large: Path) -> None:
    done = memlint("check", "large.yaml", "--unsafe-fixes")
    text = large.read_text(encoding="utf-8")
    assert "gradient_checkpointing: true" in text
    assert "# fills the card nicely, or so we thought" in text
    assert "micro_batch_size: 4" not in text or done.code == 1


def test_unsafe_fixes_take_from_the_batch_only_what_safe_ones_leave(memlint: Memlint, tmp_path: Path) -> None:
    script = Path(shutil.copy(EXAMPLES / "hf_trainer" / "does_not_fit.py", tmp_path / "train.py"))
    done = memlint("check", "train.py", "--unsafe-fixes")
    text = script.read_text(encoding="utf-8")
    assert done.code == 0, done.out
    assert "gradient_checkpointing=True" in text
    batch, steps = (int(re.search(rf"{name}=(\d+)", text)[1]) for name in ("train_batch_size", "accumulation_steps"))  # type: ignore[index]
    assert batch < 16
    assert batch * steps == 16 * 2


def test_standard_input(memlint: Memlint, large: Path) -> None:
    text = large.read_bytes()
    done = memlint("check", "-", "--stdin-filename", "elsewhere/run.yaml", "--format", "concise", stdin=text)
    assert done.code == 1
    assert done.out.startswith("elsewhere/run.yaml:")
    fixed = memlint("check", "-", "--stdin-filename", "run.yaml", "--fix", stdin=text)
    assert "gradient_checkpointing: true" in fixed.out.splitlines()
    assert "MEM001" in fixed.err


def test_a_baseline_silences_what_is_known_and_only_that(memlint: Memlint, tmp_path: Path, large: Path) -> None:
    written = memlint("baseline", "write", ".")
    assert written.code == 0
    done = memlint("check", ".", "--format", "json")
    assert (done.code, codes(done)) == (0, [])
    assert {finding["reason"] for finding in json.loads(done.out)["suppressed"]} == {"accepted in the baseline"}
    assert memlint("check", ".", "--no-ignores").code == 1
    shutil.copy(large, tmp_path / "second.yaml")
    assert memlint("check", ".").code == 1
    (tmp_path / "second.yaml").unlink()
    large.write_text(large.read_text(encoding="utf-8").replace("micro_batch_size: 4", "micro_batch_size: 3"), encoding="utf-8")
    stale = memlint("check", ".")
    assert "of the baseline no longer occur" in stale.out


def test_a_comment_silences_with_its_reason(memlint: Memlint, large: Path) -> None:
    large.write_text("# memlint: file-ignore[MEM001, MEM010] bigger cards are ordered\n" + large.read_text(encoding="utf-8"))
    done = memlint("check", "large.yaml", "--format", "json")
    assert (done.code, codes(done)) == (0, [])
    assert {finding["reason"] for finding in json.loads(done.out)["suppressed"]} == {"bigger cards are ordered"}
    assert "MEM001" in codes(memlint("check", "large.yaml", "--format", "json", "--no-ignores"))


def test_excludes_hold_for_named_files_only_when_forced(memlint: Memlint, tmp_path: Path, large: Path) -> None:
    (tmp_path / "memlint.toml").write_text('exclude = ["large.yaml"]\n', encoding="utf-8")
    assert memlint("check", ".").code == 0
    assert memlint("check", "large.yaml").code == 1
    forced = memlint("check", "large.yaml", "README.md", "--force-exclude")
    assert forced.code == 2  # README.md does not exist
    (tmp_path / "README.md").write_text("text\n", encoding="utf-8")
    forced = memlint("check", "large.yaml", "README.md", "--force-exclude")
    assert forced.code == 0
    assert "2 excluded" in forced.out


def test_colour_is_for_terminals_unless_forced(memlint: Memlint, large: Path) -> None:
    assert "\x1b" not in memlint("check", "large.yaml").out
    assert "\x1b[1;31m" in memlint("check", "large.yaml", env={"FORCE_COLOR": "1"}).out
    assert "\x1b" not in memlint("check", "large.yaml", env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).out


def test_output_survives_a_terminal_without_unicode(memlint: Memlint, large: Path) -> None:
    done = memlint("check", "large.yaml", env={"PYTHONIOENCODING": "ascii", "LANG": "C"})
    assert done.code == 1
    assert "###" in done.out


@pytest.fixture
def repository(tmp_path: Path, large: Path) -> Path:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    shutil.copy(EXAMPLES / "axolotl" / "fits.yaml", tmp_path / "small.yaml")
    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "--message", "all")
    return tmp_path


def test_since_looks_at_changed_and_new_files_only(memlint: Memlint, repository: Path) -> None:
    clean = memlint("check", "--since", "HEAD", "--format", "json")
    assert json.loads(clean.out)["summary"]["files"] == 0
    small = repository / "small.yaml"
    small.write_text(small.read_text(encoding="utf-8") + "seed: 1\n", encoding="utf-8")
    shutil.copy(small, repository / "new.yaml")
    changed = memlint("check", "--since", "HEAD", "--format", "json")
    assert (changed.code, json.loads(changed.out)["summary"]["files"]) == (0, 2)
    missing = memlint("check", "--since", "no-such-revision")
    assert missing.code == 2


def test_diff_of_a_change_is_a_markdown_table(memlint: Memlint, repository: Path) -> None:
    assert memlint("diff", "HEAD").out == "No training run is touched by this change.\n"
    large = repository / "large.yaml"
    text = large.read_text(encoding="utf-8")
    large.write_text(text.replace("micro_batch_size: 4", "micro_batch_size: 1"), encoding="utf-8")
    shutil.copy(repository / "small.yaml", repository / "new.yaml")
    subprocess.run(["git", "add", "new.yaml"], cwd=repository, check=True)
    done = memlint("diff", "HEAD")
    rows = [line for line in done.out.splitlines() if line.startswith("| `")]
    assert done.code == 0
    assert len(rows) == 2
    assert rows[0].startswith("| `large.yaml` |") and "−" in rows[0] and "does not fit 24 GB card" in rows[0]
    assert rows[1].startswith("| `new.yaml` | none |") and "| new |" in rows[1]


def test_diff_sees_a_change_in_a_linked_file(memlint: Memlint, tmp_path: Path) -> None:
    work = tmp_path / "work"
    shutil.copytree(EXAMPLES / "llama_factory", work)
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    for arguments in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "all"]):
        subprocess.run(["git", *identity, *arguments], cwd=work, check=True, capture_output=True)
    linked = work / "ds_z3_config.json"
    linked.write_text(linked.read_text(encoding="utf-8").replace('"stage": 3', '"stage": 2'), encoding="utf-8")
    done = memlint("diff", "HEAD", cwd=work)
    (row,) = [line for line in done.out.splitlines() if line.startswith("| `fits.yaml`")]
    assert "+" in row


def test_what_many_runs_lack_is_said_once(memlint: Memlint, tmp_path: Path, large: Path) -> None:
    text = large.read_text(encoding="utf-8").replace("# memlint: gpu=24GB\n", "")
    large.unlink()
    for number in range(5):
        (tmp_path / f"run{number}.yaml").write_text(text, encoding="utf-8")
    (note,) = json.loads(memlint("check", ".", "--format", "json").out)["notes"]
    assert "run0.yaml:" in note
    assert " and 4 more: no target card is named" in note


def test_a_code_is_suggested_as_it_is_written(memlint: Memlint) -> None:
    assert "did you mean MEM0" in memlint("rule", "mem0999").err
