"""Measure real training steps on the GPU at hand, in the format of the accuracy benchmark's cases.

Random weights from the catalogue's configurations, so nothing is downloaded. No GPU was at hand when this was written: the
loop is tested on the CPU with tiny models (`--device cpu --tiny`), and no figure of it has been committed yet.
"""
