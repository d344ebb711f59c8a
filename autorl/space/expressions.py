"""The small expression language of search spaces.

It is read by Python's parser and never evaluated as Python. Names may contain dots
(`ppo.batch_size`). Words that are not names are values (`optimizer == adam`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from autorl.core.plain_text import shown
from autorl.core.types import InputError
from autorl.space.canonical import is_number

Values: TypeAlias = Mapping[str, Any]
T = TypeVar("T")
Operator: TypeAlias = Literal["==", "!=", "<", "<=", ">", ">=", "in"]
SIGNS: Mapping[type[ast.cmpop], Operator] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
ORDER = ("<", "<=", ">", ">=")
# The operator of a comparison with its sides exchanged.
FLIPPED: Mapping[str, Operator] = {
    "==": "==",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
_WORDS: Mapping[str, Any] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL"), None),
}
_KEYWORDS = frozenset({"and", "or", "not", "in"})
_TEXT = r"(?P<text>'[^']*'|\"[^\"]*\")"
_NUMBER = r"(?P<number>(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
_WORD = r"(?P<name>{unusual}[^\W\d]\w*(?:\.\w+)*)"
# Words stand for themselves under this name: Python's parser takes `ppo.lr` for an attribute of
# `ppo` and `lambda` for no name at all.
_MARK = "_name_"


@dataclass(frozen=True)
class Syntax:
    """A parsed expression.

    Attributes:
        text: as it is written.
        tree: its syntax, in which the i-th word stands as the name `_name_i`.
        words: names of hyperparameters and constants, and values that are words.
    """

    text: str
    tree: ast.expr
    words: tuple[str, ...]

    def word(self, node: ast.AST) -> str | None:
        """Return the word that `node` is, if it is one."""
        return self.words[int(node.id[len(_MARK) :])] if isinstance(node, ast.Name) else None


def parse(text: object, names: Collection[str]) -> Syntax:
    """Parse an expression in which `names` and other words may stand.

    Raises:
        InputError: it is not a string or not an expression.
    """
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"expected an expression such as `x <= 2 * y`, got {shown(text)}")
    words: list[str] = []

    def mark(match: re.Match[str]) -> str:
        word = match["name"]
        if word is None or word in _KEYWORDS:
            return match[0]
        words.append(word)
        return f"{_MARK}{len(words) - 1}"

    try:
        # Stripped: a space before an expression is an IndentationError.
        tree = ast.parse(_tokens(names).sub(mark, text).strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # Python's parser says MemoryError of parentheses about 200 deep.
        raise InputError(f"cannot read the expression {shown(text)}") from None
    return Syntax(text, tree.body, tuple(words))


def rename(text: str, names: Mapping[str, str]) -> str:
    """Replace names in a text by their new names, except in quotes."""
    return _tokens(names).sub(
        lambda match: names.get(match[0], match[0]) if match["name"] else match[0], text
    )


def _tokens(names: Collection[str]) -> re.Pattern[str]:
    # `x-y` is a name where the space has one, elsewhere a difference.
    unusual = sorted((name for name in names if re.search(r"[/-]", name)), key=len, reverse=True)
    alternatives = "".join(rf"{re.escape(name)}(?![\w/.-])|" for name in unusual)
    return re.compile("|".join([_TEXT, _NUMBER, _WORD.format(unusual=alternatives)]))


def literal(syntax: Syntax, node: ast.AST, known: Collection[str]) -> Any:
    """Return the value that `node` spells.

    It is a number, a word, quoted text, or a list of these, as a tuple.

    Raises:
        InputError: it is an expression, or the name of a hyperparameter.
    """
    word = syntax.word(node)
    if word is not None:
        if word in known:
            raise InputError(
                f"expected a value in {shown(syntax.text)}, got the hyperparameter {shown(word)}"
            )
        return _WORDS.get(word, word)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = literal(syntax, node.operand, known)
        if is_number(value):
            return -value
    if isinstance(node, ast.List | ast.Tuple):
        return tuple(literal(syntax, item, known) for item in node.elts)
    raise InputError(f"expected a value such as 3, adam or [1, 2] in {shown(syntax.text)}")


def keyed(key: str, read: Callable[..., T], *arguments: Any) -> T:
    """Call `read`, with `key` as the key of its errors.

    Raises:
        InputError: as `read` raises, or an expression is nested too deeply.
    """
    try:
        return read(*arguments)
    except InputError as error:
        raise InputError(error.message, key=key) from None
    except RecursionError:
        raise InputError("nested too deeply", key=key) from None
