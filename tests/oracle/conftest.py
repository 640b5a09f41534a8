"""The tests here need torch, transformers and peft (the `oracle` extra); without them the plain run does not collect them."""

from importlib.util import find_spec

NEED_TORCH = ["test_counts.py", "test_defaults.py", "test_hf.py", "test_trace.py", "test_measure.py", "test_optimizer_states.py",
              "test_tuners_record.py", "test_kept_attributes.py"]  # fmt: skip
collect_ignore = [] if all(find_spec(name) for name in ("torch", "transformers", "peft")) else NEED_TORCH
