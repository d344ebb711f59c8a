"""Reports on studies: results, plans, configurations to reuse, HTML."""
