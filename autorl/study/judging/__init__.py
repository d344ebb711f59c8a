"""Judges edits, and remembers every judgement."""
