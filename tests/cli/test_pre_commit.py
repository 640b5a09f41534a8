"""The real pre-commit, installing memlint from this checkout as it would from its repository (needs a package index)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conversation import EXAMPLES, ROOT

PARTS = ("memlint", "rules", "pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml")


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def repository(folder: Path) -> None:
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all")


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This checkout as it is now, committed into a repository of its own."""
    folder = tmp_path_factory.mktemp("hooks")
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / part)
    repository(folder)
    return folder


def try_repo(hooks: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pre_commit", "try-repo", str(hooks), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PRE_COMMIT_HOME": str(folder.parent / "pre-commit"), "PRE_COMMIT_COLOR": "never"},
        check=False,
        timeout=600,
    )


@pytest.mark.network
def test_hooks_fail_on_a_run_that_does_not_fit_and_fix_it(hooks: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(EXAMPLES / "axolotl" / "does_not_fit.yaml", work / "large.yaml")
    shutil.copy(EXAMPLES / "axolotl" / "fits.yaml", work / "small.yaml")
    (work / "unrelated.yaml").write_text("name: ci\non: push\n", encoding="utf-8")
    repository(work)
    done = try_repo(hooks, work, "--all-files")
    assert done.returncode == 1, done.stdout + done.stderr
    lint, fix = done.stdout.split("memlint (fix)")
    assert "Failed" in lint
    assert "large.yaml" in lint and "MEM001" in lint
    assert "small.yaml" not in lint
    assert "files were modified by this hook" in fix
    changed = (work / "large.yaml").read_text(encoding="utf-8")
    assert "gradient_checkpointing: true" in changed
    assert "# fills the card nicely, or so we thought" in changed


@pytest.mark.network
def test_the_hook_passes_where_every_run_fits(hooks: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(EXAMPLES / "axolotl" / "fits.yaml", work / "small.yaml")
    repository(work)
    done = try_repo(hooks, work, "memlint", "--all-files")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed" in done.stdout
