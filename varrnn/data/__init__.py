"""Download, verify and tokenise the corpora."""
