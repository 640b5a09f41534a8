from .defaults import DTYPE
