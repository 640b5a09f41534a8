"""Rules: Markdown pages with a condition over facts and the estimate, and what becomes of their findings."""

BASELINE = ".memlint-baseline.json"
"""The file of accepted findings, at the root of a repository."""
