"""Types, seeds and the small helpers that every room uses."""
