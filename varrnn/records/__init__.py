"""Published evidence: the records of finished runs."""
