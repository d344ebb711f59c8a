"""Landscape data sets: every run of many configurations x seeds, queryable, validated, publishable."""

from autorl.landscapes.dataset import Choice, Landscape, list_landscapes, load_landscape
from autorl.landscapes.grid import Grid
from autorl.landscapes.manifest import Manifest, Objective
from autorl.landscapes.schema import SCHEMA_VERSION, Column, Tables, config_rows
from autorl.landscapes.write import append, compact, write_landscape

__all__ = [
    "SCHEMA_VERSION",
    "Choice",
    "Column",
    "Grid",
    "Landscape",
    "Manifest",
    "Objective",
    "Tables",
    "append",
    "compact",
    "config_rows",
    "list_landscapes",
    "load_landscape",
    "write_landscape",
]
