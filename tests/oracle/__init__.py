"""Ground truth for the memory program: real model classes traced on fake CUDA tensors, recorded as data."""
