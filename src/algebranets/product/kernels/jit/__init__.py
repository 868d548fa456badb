"""Triton code: kernels and the functions that launch them, which know tensors but neither modules nor gradients."""
