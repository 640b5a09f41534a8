"""Launches: which files form one training job, and what the launcher decides about it."""

from memlint.launch.command import Command

__all__ = ["Command"]
