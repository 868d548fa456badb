"""What the paper published, beside what is computed here."""
