"""Drawing of figures in the house style, as SVG, for the report and the benchmarks."""
