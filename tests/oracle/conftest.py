"""Every test here needs torch, transformers and peft (the `oracle` extra); without them the plain run collects none of them."""

from importlib.util import find_spec

collect_ignore_glob = [] if all(find_spec(name) for name in ("torch", "transformers", "peft")) else ["test_*.py"]
