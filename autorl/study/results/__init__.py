"""Reads a study: its record, its result, models and landscape."""
