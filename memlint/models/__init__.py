"""Models by name: which architecture a hub id, a directory or an inline configuration is. Data is read on first use."""

from memlint.models.architecture import Architecture
from memlint.models.config import from_config
from memlint.models.lookup import Lookup, lookup

__all__ = ["Architecture", "Lookup", "from_config", "lookup"]
