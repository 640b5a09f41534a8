"""Rules: Markdown pages with a condition over facts and the estimate, and what becomes of their findings."""

from memlint.rules.catalogue import find_rule, load_rules, selected
from memlint.rules.engine import check
from memlint.rules.finding import Confidence, Finding, Fix, Label, Safety, Severity
from memlint.rules.rule import Rule

__all__ = [
    "Confidence",
    "Finding",
    "Fix",
    "Label",
    "Rule",
    "Safety",
    "Severity",
    "check",
    "find_rule",
    "load_rules",
    "selected",
]
