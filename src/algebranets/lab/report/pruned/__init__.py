"""Reports on pruned networks: the paper's Tables 4 and 5, its Figure 3, and key figures."""
