"""The documentation site: tables and figures from rows, the reference, notebooks, llms.txt and a link checker."""
