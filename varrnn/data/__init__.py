"""Readers of the corpora: fetch, check, tokenise."""
