"""memlint: will this training run fit on its GPU, and what is the smallest change that makes it fit?"""

__version__ = "0.1.0"
