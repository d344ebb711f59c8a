"""Reads records on lines of output, as training programs print them.

Nothing is ever evaluated: text is parsed.

Recognised: a JSON object; a line of nothing but `step=7, return=0.5`; a Python dict literal (TRL
and other users of transformers: values may be text); `step:7 - critic/score/mean:0.5 - ...` (verl);
`... Global step 7: {...}` and `... global_step 7, eval_metrics: {...}` (OpenRLHF). Before any of
them: colour codes, the prefix `(TaskRunner pid=123)` of Ray, and the prefix `[rank0]:` or
`[default0]:` of torchrun, whose other ranks are left out, for every rank prints the same.
"""

from __future__ import annotations

import ast
import json
import math
import re
from typing import Any

_NON_FINITE = {"nan": math.nan, "NaN": math.nan, "inf": math.inf, "Infinity": math.inf}
# Np.float64(0.5), as NumPy 2 prints it.
_SCALARS = ("float64", "float32", "float16", "int64", "int32", "tensor")
# A name, and a value without spaces, on a line of such pairs.
_PAIR = re.compile(r"([A-Za-z_][\w./-]*)\s*=\s*([^\s,;|]+)(?:[\s,;|]+|$)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RAY = re.compile(r"^\([\w.:-]+(?: pid=\d+)?(?:, ip=[\d.]+)?\)\s*")
_RANK = re.compile(r"^\[(?:rank|default)(\d+)\]:\s?")
_VERL = re.compile(r"(?:^|\s)step:(\d+)((?: - \S+:\S+)+)\s*$")
_OPENRLHF = re.compile(r"[Gg]lobal[ _]step (\d+)(?::|, eval_metrics:) (\{.*\})\s*$")


def parse_line(line: str) -> dict[str, Any] | None:
    """Read the record on a line of output, or None.

    A step that stands in the text around comes under the key `step`.
    """
    text = _COLOUR.sub("", line).strip()
    rank = _RANK.match(text)
    # Every rank prints the same: one record of a step is enough.
    if rank is not None and int(rank.group(1)):
        return None
    if rank is not None:
        text = text[rank.end() :]
    text = _RAY.sub("", text)
    if text.startswith("{") and text.endswith("}"):
        return _mapping(text)
    match = _OPENRLHF.search(text)
    if match:
        record = _mapping(match.group(2))
        return None if record is None else {"step": int(match.group(1)), **record}
    match = _VERL.search(text)
    if match:
        return {"step": int(match.group(1)), **_pairs(match.group(2))}
    return dict(_PAIR.findall(text)) if text and not _PAIR.sub("", text) else None


def number(value: object) -> float | None:
    """Read a number, or its text, as a float, else None.

    Such texts are `'0.2141'`, `'np.float64(0.5)'` and `'[0.5]'`, an array of one.
    """
    if isinstance(value, str):
        value = _literal(value.strip())
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
    # A truth value is an `int` to Python, and no measurement.
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _mapping(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    # Not JSON: perhaps a dict as Python prints it, with None, True and single quotes.
    except ValueError:
        value = _literal(text)
    return value if isinstance(value, dict) else None


def _pairs(text: str) -> dict[str, float]:
    """Read pairs joined by colons as numbers by name.

    They look like ` - critic/score/mean:0.5 - val-core/data/acc:np.float64(0.25)`.
    """
    items = (item.rpartition(":") for item in text.split(" - ") if item)
    values = {name: number(value) for name, _, value in items}
    return {name: value for name, value in values.items() if value is not None}


def _literal(text: str) -> Any:
    try:
        tree = _Constants().visit(ast.parse(text, mode="eval"))
        return ast.literal_eval(tree)
    # All that `ast.literal_eval` may raise on malformed text, by its documentation.
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None


class _Constants(ast.NodeTransformer):
    """Turns `nan`, `inf` and wrapped scalars, as Python prints them, to constants.

    `literal_eval` takes those.
    """

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return (
            ast.copy_location(ast.Constant(_NON_FINITE[node.id]), node)
            if node.id in _NON_FINITE
            else node
        )

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        if name in _SCALARS and len(node.args) == 1:
            # Again, for `np.float64(nan)`.
            inner: ast.expr = self.visit(node.args[0])
            return inner
        return node
