"""Pruned networks: the paper's Tables 4 and 5 and its Figure 3 in form, and what they say in words."""
