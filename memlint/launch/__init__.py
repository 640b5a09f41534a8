"""Launches: which files form one training job, and what the launcher decides about it."""

from memlint.launch.command import Command
from memlint.launch.read import read_launch

__all__ = ["Command", "read_launch"]
