"""Reading studies and reporting them: the result screen, configurations to reuse, plans, HTML reports."""
