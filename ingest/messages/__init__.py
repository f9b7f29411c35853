"""JSON messages on their way to several tables, whose schemas drift. See docs/messages.md."""
