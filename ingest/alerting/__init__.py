"""Who is told of a feed that goes bad: conditions, what was told already, receivers."""
