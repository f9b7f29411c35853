"""Cutting files into records: exact text, position, and what a parser would silently leave out."""
