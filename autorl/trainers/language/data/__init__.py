"""A user's data sets: rows, the meaning of columns, held-out prompts."""
