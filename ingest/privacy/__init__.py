"""What is personal: shown masked, removed when its time is over, and found by its value."""
