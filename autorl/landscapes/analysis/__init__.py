"""Analyses of landscapes: what matters, what transfers, what is noise, which environments represent the others."""
