"""Proof that an edit does what was meant: read again, every fact of every run is as before, but for the ones to change.

A fact may follow a changed one: the default of a library that depends on it (`eval.batch_size` of Axolotl follows the
micro batch), or a detail of it (`checkpointing.use_reentrant` exists only with checkpointing on). Anything else that
moves means that the edit hit something shared, and the edit is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memlint.facts import Extraction, Fact, Status, TrainingRun
from memlint.facts.keys import normalise
from memlint.typed import Any

FOLLOWERS: Mapping[str, tuple[str, ...]] = {
    "batch.micro_batch_size": ("eval.batch_size",),
    "checkpointing.enabled": ("checkpointing.",),
    "precision": ("model.dtype", "quantization.compute_dtype", "parallel.mp_", "trainer.outputs_fp32", "adapter.dtype"),
    "model.dtype": ("precision", "adapter.dtype", "model.norm_dtype", "quantization.compute_dtype"),
    "quantization.method": ("quantization.", "model.dtype", "model.norm_dtype", "adapter.dtype"),
    "adapter.method": ("adapter.", "trainable."),
    "optimizer.name": ("optimizer.",),
    "loss.logits": ("loss.", "kernels", "trainer.outputs_fp32"),
    "parallel.fsdp_sharding": ("parallel.reshard_after_forward",),
    "parallel.reshard_after_forward": ("parallel.fsdp_sharding",),
    "parallel.strategy": ("parallel.", "precision", "optimizer.master_weights"),
}
"""Changed key -> the keys (or prefixes of keys) that belong to it and may change with it.

Authors let the evaluation batch follow the training batch (one constant, `${batch_size}`); its size changes no result.
"""


def find(runs: Sequence[TrainingRun], run: TrainingRun) -> int | None:
    """Which of the runs of an extraction a run is; by its place, and by its dialect where two start together."""
    alike = [index for index, other in enumerate(runs) if other.span == run.span and other.path == run.path]
    exact = [index for index in alike if runs[index].dialect == run.dialect]
    return next(iter(exact or alike), None)


def holds(before: Extraction, after: Extraction, index: int, changes: Mapping[str, Any]) -> bool:
    """Whether `after` is `before` with the changes made to the run at `index`, and nothing else.

    Another run may have the same changes (two launches of one script), no other ones.
    """
    if len(before.runs) != len(after.runs) or len(after.errors) > len(before.errors):
        return False
    if not all(says(after.runs[index], key, value) for key, value in changes.items()):
        return False
    return all(_kept(old, new, changes) for old, new in zip(before.runs, after.runs, strict=True))


def says(run: TrainingRun, key: str, value: Any) -> bool:
    """Whether a run has exactly this value under a key."""
    fact = run.facts.get(key)
    return fact is not None and fact.known and same(key, fact.value, value)


def same(key: str, a: Any, b: Any) -> bool:
    """Equal as values of a key: spellings and the order of names aside."""
    a, b = normalise(key, a), normalise(key, b)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return sorted(map(str, a)) == sorted(map(str, b))
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _kept(before: TrainingRun, after: TrainingRun, changes: Mapping[str, Any]) -> bool:
    if {problem.name for problem in after.problems} - {problem.name for problem in before.problems}:
        return False
    for key in {*before.facts, *after.facts}:
        old, new = before.facts.get(key), after.facts.get(key)
        if _alike(key, old, new) or (key in changes and says(after, key, changes[key])):
            continue
        if not _follows(key, new, changes):
            return False
    return True


def _alike(key: str, old: Fact | None, new: Fact | None) -> bool:
    if old is None or new is None:
        return old is new
    if old.known and new.known:
        return same(key, old.value, new.value)
    return old.status is new.status and old.choices == new.choices


def _follows(key: str, new: Fact | None, changes: Mapping[str, Any]) -> bool:
    """Whether a fact may change along: a default without a place of its own, or a detail of what was changed."""
    if new is not None and new.status is Status.DEFAULT and not (new.origin and new.origin[0].span):
        return True
    return any(key.startswith(follower) for changed in changes for follower in FOLLOWERS.get(changed, ()))
