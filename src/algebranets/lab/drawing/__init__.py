"""Figures in the house style, as SVG: what the report and the benchmarks draw with."""
