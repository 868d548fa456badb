"""Reports on finished runs: tables, figures and a page, compared with the paper."""
