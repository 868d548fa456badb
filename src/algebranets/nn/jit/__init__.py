"""Triton code of layers, imported where a kernel runs: triton is not on every machine."""
