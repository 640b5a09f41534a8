"""The tests here need torch, transformers and peft (the `oracle` extra); without them the plain run does not collect them."""

from importlib.util import find_spec

collect_ignore = [] if all(find_spec(name) for name in ("torch", "transformers", "peft")) else ["test_trace.py", "test_measure.py"]
