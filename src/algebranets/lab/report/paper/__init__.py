"""The figures that the paper prints, next to those computed or trained here.

- `printed`: the figures of the paper, typed in by hand;
- `operations`: how the paper counts the operations of its language models;
- `comparison`: every table of the paper, its figures next to ours;
- `rows`: the paper's row for a network that was trained here, and its statements about variants;
- `departures`: titles of the recipes, and notes on how each of them differs from the paper.
"""

from algebranets.lab.report.paper.comparison import NOT_TRAINED, Entry, Table, count, look_up, tables

__all__ = ["NOT_TRAINED", "Entry", "Table", "count", "look_up", "tables"]
