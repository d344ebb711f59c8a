"""Begins, checks and copies the folder of a study."""
