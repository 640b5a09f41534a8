"""Predicted against measured: how far memlint's estimates are from published measurements, by family of sources."""
