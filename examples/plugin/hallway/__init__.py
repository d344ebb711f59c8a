"""A trainer and an optimizer for autorl, in a package of their own."""
