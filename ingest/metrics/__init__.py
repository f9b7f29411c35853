"""What a lake is like, for other tools: Prometheus and OpenLineage."""
