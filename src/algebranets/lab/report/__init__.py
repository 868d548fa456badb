"""Reports on finished runs: tables, figures and a page, next to what the paper prints."""
