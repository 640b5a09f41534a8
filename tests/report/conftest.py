"""A hand-made result: two runs of one script, one finding each kind, hostile text, an unreadable file."""

from __future__ import annotations

import pytest

from memlint.assess import Assessment
from memlint.facts import TrainingRun, choices, default, fixed, unknown
from memlint.gpus import find
from memlint.memory.result import Estimate, Instant, Interval
from memlint.report.result import CheckResult, Remedy, TextEdit
from memlint.rules.finding import Confidence, Finding, Fix, Label, Safety, Severity
from memlint.source import Kind, ReadError, Source, Span

GIB = 1 << 30
SCRIPT = """\
from transformers import TrainingArguments

args = TrainingArguments(
    per_device_train_batch_size=16,
    optim="adamw_torch",  # größer ist besser
)
"""


def exactly(count: float) -> Interval:
    return Interval(int(count * GIB), int(count * GIB), int(count * GIB))


@pytest.fixture
def estimate() -> Estimate:
    at_peak = {
        "weights": 2 * GIB,
        "gradients": 2 * GIB,
        "optimizer_states": 4 * GIB,
        "activations": 20 * GIB,
        "logits": 10 * GIB,
    }
    return Estimate(
        allocated=exactly(38),
        required=Interval(38 * GIB, 39 * GIB, 41 * GIB),
        reserved=exactly(42),
        device=exactly(42.5),
        peak_phase="backward",
        components={**at_peak, "context": GIB // 2},
        timeline=(
            Instant("load", 2 * GIB, {"weights": 2 * GIB}),
            Instant("forward", 26 * GIB, {"weights": 2 * GIB, "optimizer_states": 4 * GIB, "activations": 20 * GIB}),
            Instant("backward", 38 * GIB, at_peak),
        ),
        parameters=494_000_000,
        trainable_parameters=494_000_000,
        assumptions=("dropout masks take one byte per element",),
    )


@pytest.fixture
def run() -> TrainingRun:
    span = Span("train.py", 4, 5, 4, 35)
    return TrainingRun(
        "train.py",
        Span("train.py", 3, 8, 6, 2),
        {
            "model.id": fixed("Qwen/Qwen2.5-0.5B", span),
            "batch.micro_batch_size": fixed(16, span),
            "optimizer.name": default("adamw_torch_fused", "transformers 5.24.0"),
            "precision": choices(["bf16-mixed", "fp16-mixed"], span, "both branches"),
            "batch.sequence_length": unknown("read from the data at run time"),
        },
        dialect="transformers",
        recognised_by="a Trainer is built and trained",
        files=("train.py", "ds.json"),
    )


@pytest.fixture
def assessment(run: TrainingRun, estimate: Estimate) -> Assessment:
    return Assessment(run, estimate=estimate, gpu=find("rtx-4090"), verdict="does_not_fit")


@pytest.fixture
def result(assessment: Assessment) -> CheckResult:
    fix = Fix("turn on gradient checkpointing", {"checkpointing.enabled": True}, Safety.SAFE)
    error = Finding(
        "MEM001",
        "does-not-fit",
        Severity.ERROR,
        Confidence.BOUNDED,
        "needs 39.5 GiB, the card has 23.5 GiB",
        Span("train.py", 4, 5, 4, 35),
        labels=(Label(Span("train.py", 5, 5, 5, 24), "32-bit Adam states"),),
        fixes=(fix,),
        logical="batch.micro_batch_size",
        fingerprint="0123456789abcdef",
    )
    hostile = Finding(
        "MEM040",
        "adam-states",
        Severity.INFO,
        Confidence.PROVED,
        "model \x1b[31m|<b>@all</b>`%0A::error::\n\u202eevil",
        Span("train.py", 5, 27, 5, 46),
        fingerprint="fedcba9876543210",
    )
    silenced = Finding(
        "MEM003", "micro-batch", Severity.WARNING, Confidence.GUESSED, "too large", Span("train.py", 4, 5), reason="80 GB cards",
        fingerprint="00ff00ff00ff00ff",
    )  # fmt: skip
    edit = TextEdit(Span("train.py", 4, 35, 4, 35), ",\n    gradient_checkpointing=True")
    sources = {"train.py": Source("train.py", Kind.PYTHON, SCRIPT)}
    return CheckResult(
        findings=(error, hostile),
        suppressed=(silenced,),
        errors=(ReadError("not valid YAML", "broken.yaml", 3, 7),),
        assessments=(assessment,),
        files=2,
        remedies={error.fingerprint: (Remedy(fix, int(42.5 * GIB), int(17.8 * GIB), (edit,)),)},
        breakdowns={error.fingerprint: assessment},
        read=sources.get,
    )
