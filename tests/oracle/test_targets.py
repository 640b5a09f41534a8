"""The modules that PEFT adapts where a configuration names none are those of the installed version."""

from __future__ import annotations

import pytest
from peft.mapping import PEFT_TYPE_TO_TUNER_MAPPING

from memlint.memory.result import CannotEstimate
from memlint.memory.targets import DEFAULTS, default_targets

METHODS = {str(kind.value).lower(): tuner for kind, tuner in PEFT_TYPE_TO_TUNER_MAPPING.items()}
NAMING = {
    method: tuner.target_module_mapping
    for method, tuner in METHODS.items()
    if getattr(tuner, "target_module_mapping", None) and method != "ln_tuning"
}


@pytest.mark.parametrize("method", NAMING)
def test_default_targets_are_those_of_the_method(method: str) -> None:
    """For every model type that the method knows."""
    for model_type, wanted in NAMING[method].items():
        found = default_targets(method, model_type)
        assert (found if isinstance(found, str) else list(found)) == wanted, model_type


def test_every_type_is_one_of_lora() -> None:
    """No type stands in the table that PEFT does not know."""
    assert DEFAULTS.keys() == NAMING["lora"].keys()


def test_a_type_without_default_is_no_estimate() -> None:
    """PEFT stops there, too ("Please specify `target_modules`")."""
    with pytest.raises(CannotEstimate, match=r"adapter\.target_modules"):
        default_targets("lora", "phi3")
