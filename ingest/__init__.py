"""Files nobody controls into Bronze, and what operators do with the lake."""
