"""A user's data sets: their rows, what the columns mean, and which prompts are held out."""
