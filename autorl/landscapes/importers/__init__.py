"""Importers: data sets of others as landscape folders. One module per source format."""
