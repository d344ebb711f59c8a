"""Values that a notebook shows as tables and charts."""

from __future__ import annotations

from importlib import import_module


class Shown:
    """A value with an account of itself in `report/notebook.py`."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        # By name: what draws may know every room, and stands above them.
        html: str = import_module("autorl.report.notebook").html(self)
        return html
