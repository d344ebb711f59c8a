"""A trainer and three optimizers for autorl, in a package of their own."""
