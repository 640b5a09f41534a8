"""What would make a run fit (`plan`), and how a change gets into the files (`fix_edits`, `run_fixes`)."""

from memlint.fixes.fix import Applied, Fixed, FixEdits, Offer, fix_edits, run_fixes
from memlint.fixes.plan import Proposal, plan

__all__ = ["Applied", "FixEdits", "Fixed", "Offer", "Proposal", "fix_edits", "plan", "run_fixes"]
