"""Count how the code is written, room by room: long lines, riddling names, dense statements, prose.

    python benchmarks/house.py                    # one row per room, the package last
    python benchmarks/house.py statistics spec    # these rooms only
    python benchmarks/house.py spec --list        # each place as well: file, line, measure, text
    python benchmarks/house.py --root OTHER/autorl

The measures were first taken at commit ce52ae0. Of its files this script counts, with the figure of
that first count behind it: 3,912 lines over 100 (3,913), 572 vague names of 11,003 (5.4 %), 400 first
lines with a semicolon (400), 303 imports in functions (303), 232 of 689 private functions of use
once (234), parameters with `Any` 14.9 % (14.6 %), tuple assignments 443 (488).

* long code, long comments, long docstrings: lines of more than 100 characters. A line is a long
  comment where its code alone would fit.
* Any: share of parameters (`self` and `cls` left out) whose type has `Any` in it.
* vague: share of assigned names that are bare function words (`FUNCTION_WORDS`), `left` only
  in files that assign no `right`.
* semicolons: docstrings with one in the first line.
* words: median of words in the first lines of docstrings, and how many have more than 12.
* verb: share of first lines that begin with a verb (`VERBS`, imperative or third person).
* wh: share of first lines that begin with What, Who, How or Whether.
* code/comment: lines of code for one comment.
* one-use: share of a file's private functions that have at most 8 lines and are named just once.
* tuples: assignments of several values in one line.
* nested if: conditional expressions below a call's arguments.
* imports: import statements in functions, and those of the package itself.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

PACKAGE = Path(__file__).resolve().parents[1] / "autorl"
LONGEST_LINE = 100
MOST_WORDS = 12
SHORT_FUNCTION = 8  # lines
GENERATED = ("_pb2.py",)
# A sentence that begins with such a word has no subject, unless it asks.
HEADLESS = re.compile(
    r"(Of|Those|That of|What|Who|Whoever|None where|None when|None if|So|Where|Without)\b(?!.*\?)"
)
SECTION = re.compile(r"\n\s*(Args|Returns|Raises|Attributes|Yields|References?):")
FUNCTION_WORDS = """
    apart both each found given here kept known left mine one other others ours own rest same
    such theirs there these those told wanted whole
"""
VERBS = """
    accept add adjust advance aggregate align allow answer append apply ask assemble assign
    average begin bind bring build call cancel carry cast change charge check choose clear clip
    close collect combine compare compile compute concatenate convert copy correct count create
    cut decide decode delete deliver describe detect differentiate discard divide draw drop
    embed encode end enumerate estimate evaluate expand explain export extend fetch fill filter
    find fit fold follow form forget format forward freeze gather get give go group guess guard
    hand hash hold import insert install interpolate iterate join judge keep kill know lay lead
    leave let limit list load lock look lower make map mark mask match measure merge modify move
    multiply name normalise normalize note notify number observe offer open order pack pair
    parse pass permute pick place plan play predict prepare print produce project propagate
    propose put quote raise rank read receive record reduce refer refuse register release
    remember remove rename render repair repeat replace report require reset resolve restore
    restrict resume retry return reverse rewrite round run sample save say scale score search
    see select send serialise serve set shift show shuffle simulate skip sleep solve sort spell
    split stack start state stop store strip subtract sum summarise swap switch take tell test
    tidy track train transform translate transpose try turn undo unite unpack update use
    validate verify wait walk warn weigh withdraw wrap write yield zero
"""
Function = ast.FunctionDef | ast.AsyncFunctionDef
VAGUE = frozenset(FUNCTION_WORDS.split())
DOCUMENTED = ast.Module | ast.ClassDef | Function


@dataclass(frozen=True)
class Place:
    """A line that a measure counts."""

    file: str
    line: int
    measure: str
    text: str


@dataclass
class Counts:
    """What was counted in some files."""

    lines: int = 0
    code: int = 0
    comments: int = 0
    parameters: int = 0
    assigned: int = 0
    private: int = 0
    first_lines: list[str] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)

    def number(self, *measures: str) -> int:
        """Number of places of the measures."""
        counted = Counter(place.measure for place in self.places)
        return sum(counted[measure] for measure in measures)

    def add(self, other: Counts) -> None:
        """Add what was counted in other files."""
        self.lines += other.lines
        self.code += other.code
        self.comments += other.comments
        self.parameters += other.parameters
        self.assigned += other.assigned
        self.private += other.private
        self.first_lines += other.first_lines
        self.places += other.places


class File:
    """A file of the package, parsed once for all measures."""

    def __init__(self, path: Path, root: Path) -> None:
        self.name = path.relative_to(root).as_posix()
        self.source = path.read_text(encoding="utf-8")
        self.lines = self.source.splitlines()
        self.tree = ast.parse(self.source)
        self.nodes = list(ast.walk(self.tree))
        self.docstrings = dict(_docstrings(self.nodes))
        assigned = {node.id for node in self.nodes if _is_assigned(node)}
        self.vague = VAGUE - {"left"} if "right" in assigned else VAGUE

    @property
    def room(self) -> str:
        """First folder or file of the package on the way to it."""
        return Path(self.name).with_suffix("").parts[0]

    def place(self, line: int, measure: str, text: str = "") -> Place:
        """Name a line of the file."""
        return Place(self.name, line, measure, text or self.lines[line - 1].strip())

    def count(self) -> Counts:
        """Take all measures."""
        counts = Counts(lines=len(self.lines))
        comments = self._comments()
        counts.comments = len(comments)
        counts.code = self._code_lines(comments)
        counts.places += self._long_lines(comments)
        counts.first_lines = [text.strip().split("\n")[0] for text in self.docstrings.values()]
        for node in self.nodes:
            self._count_node(node, counts)
        self._count_private(counts)
        return counts

    def _comments(self) -> dict[int, int]:
        """Return the columns at which comments begin, by line."""
        tokens = tokenize.generate_tokens(io.StringIO(self.source).readline)
        return {
            token.start[0]: token.start[1] for token in tokens if token.type == tokenize.COMMENT
        }

    def _code_lines(self, comments: dict[int, int]) -> int:
        prose = self._docstring_lines()
        return sum(
            1
            for number, line in enumerate(self.lines, 1)
            if number not in prose and line[: comments.get(number, len(line))].strip()
        )

    def _docstring_lines(self) -> set[int]:
        """Return the numbers of lines that docstrings occupy."""
        constants = [_docstring_node(node) for node in self.docstrings]
        return {
            line
            for constant in constants
            if constant is not None
            for line in range(constant.lineno, (constant.end_lineno or constant.lineno) + 1)
        }

    def _long_lines(self, comments: dict[int, int]) -> Iterator[Place]:
        prose = self._docstring_lines()
        for number, line in enumerate(self.lines, 1):
            if len(line) <= LONGEST_LINE:
                continue
            code = line[: comments.get(number, len(line))].rstrip()
            if number in prose:
                yield self.place(number, "long docstring")
            elif len(code) <= LONGEST_LINE:
                yield self.place(number, "long comment")
            else:
                yield self.place(number, "long code")

    def _count_node(self, node: ast.AST, counts: Counts) -> None:
        if isinstance(node, DOCUMENTED) and node in self.docstrings:
            counts.places += self._first_line(node)
            counts.places += self._headless(node)
        if isinstance(node, Function):
            self._count_function(node, counts)
        if _is_assigned(node):
            counts.assigned += 1
            if node.id in self.vague:
                counts.places.append(self.place(node.lineno, "vague", node.id))
        if isinstance(node, ast.Assign) and _several_values(node):
            measure = "swap" if _is_swap(node) else "tuple"
            counts.places.append(self.place(node.lineno, measure))
        if isinstance(node, ast.Call):
            counts.places += [
                self.place(below.lineno, "nested if")
                for argument in [*node.args, *(keyword.value for keyword in node.keywords)]
                for below in _outside_calls(argument)
                if isinstance(below, ast.IfExp)
            ]

    def _first_line(self, node: ast.AST) -> Iterator[Place]:
        text = self.docstrings[node].strip().split("\n")[0]
        line = getattr(node, "lineno", 1)
        if ";" in text:
            yield self.place(line, "semicolon", text)
        if len(text.split()) > MOST_WORDS:
            yield self.place(line, "words", text)

    def _headless(self, node: ast.AST) -> Iterator[Place]:
        """Find the first sentence before the sections that has no subject."""
        sentences = re.split(r"(?<=[.])\s+", SECTION.split(self.docstrings[node])[0])
        for sentence in sentences:
            if len(sentence.split()) > 2 and HEADLESS.match(sentence):
                yield self.place(getattr(node, "lineno", 1), "headless", " ".join(sentence.split()))
                return

    def _count_function(self, node: Function, counts: Counts) -> None:
        parameters = _parameters(node)
        counts.parameters += len(parameters)
        for parameter in parameters:
            if parameter.annotation is not None and _has_any(parameter.annotation):
                text = f"{node.name}({parameter.arg}: {ast.unparse(parameter.annotation)})"
                counts.places.append(self.place(parameter.lineno, "Any", text))
        for imported in _imports_within(node):
            counts.places.append(self.place(imported.lineno, "import"))
            if "autorl" in ast.unparse(imported):
                counts.places.append(self.place(imported.lineno, "own import"))

    def _count_private(self, counts: Counts) -> None:
        """Count the private functions of the file, methods left out."""
        names = [node.id for node in self.nodes if isinstance(node, ast.Name)]
        names += [node.attr for node in self.nodes if isinstance(node, ast.Attribute)]
        mentions = Counter(names)
        for node in self.tree.body:
            if isinstance(node, Function) and re.match("_(?!_)", node.name):
                counts.private += 1
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length <= SHORT_FUNCTION and mentions[node.name] == 1:
                    counts.places.append(self.place(node.lineno, "one-use", node.name))


def _is_assigned(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _docstrings(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.AST, str]]:
    for node in nodes:
        if isinstance(node, DOCUMENTED):
            text = ast.get_docstring(node)
            if text:
                yield node, text


def _docstring_node(node: ast.AST) -> ast.Constant | None:
    body = getattr(node, "body", [])
    expression = body[0] if body else None
    if isinstance(expression, ast.Expr) and isinstance(expression.value, ast.Constant):
        return expression.value
    return None


def _several_values(node: ast.Assign) -> bool:
    """Tell whether it is `a, b = x, y`, or several targets on one line."""
    return isinstance(node.value, ast.Tuple) and isinstance(node.targets[0], ast.Tuple)


def _is_swap(node: ast.Assign) -> bool:
    """Tell whether a value needs what a target held before: two lines would be wrong."""
    targets = {ast.unparse(target) for target in _elements(node.targets[0])}
    used = {ast.unparse(part) for part in ast.walk(node.value) if isinstance(part, ast.expr)}
    return bool(targets & used)


def _elements(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _outside_calls(node: ast.AST) -> Iterator[ast.AST]:
    """Walk an expression, calls in it left out: they count their own."""
    if isinstance(node, ast.Call):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _outside_calls(child)


def _parameters(node: Function) -> list[ast.arg]:
    arguments = node.args
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    listed += [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return [argument for argument in listed if argument.arg not in ("self", "cls")]


def _has_any(annotation: ast.expr) -> bool:
    return re.search(r"\bAny\b", ast.unparse(annotation)) is not None


def _imports_within(node: Function) -> Iterator[ast.Import | ast.ImportFrom]:
    """Give the imports of a function, those of functions inside it left out."""
    waiting: list[ast.AST] = list(node.body)
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, ast.Import | ast.ImportFrom):
            yield inner
        if not isinstance(inner, Function):
            waiting += ast.iter_child_nodes(inner)


def measure(root: Path = PACKAGE) -> dict[str, Counts]:
    """Count every room of the package, by its name."""
    paths = [path for path in sorted(root.rglob("*.py")) if not path.name.endswith(GENERATED)]
    rooms: dict[str, Counts] = {}
    for path in paths:
        file = File(path, root)
        rooms.setdefault(file.room, Counts()).add(file.count())
    return rooms


COLUMNS = (
    "room",
    "lines",
    "long code",
    "long comments",
    "long docstrings",
    "Any %",
    "vague %",
    "semicolons",
    "words",
    "> 12",
    "verb %",
    "wh %",
    "code/comment",
    "one-use %",
    "tuples",
    "nested if",
    "imports",
    "own",
)


def row_of(room: str, counts: Counts) -> list[str]:
    """Return the cells of a room, in the order of `COLUMNS`."""
    texts = counts.first_lines
    words = [len(text.split()) for text in texts]
    return [
        room,
        f"{counts.lines:,}",
        str(counts.number("long code")),
        str(counts.number("long comment")),
        str(counts.number("long docstring")),
        _share(counts.number("Any"), counts.parameters),
        _share(counts.number("vague"), counts.assigned),
        str(counts.number("semicolon")),
        f"{statistics.median(words or [0]):g}",
        str(counts.number("words")),
        _share(sum(begins_with_verb(text) for text in texts), len(texts)),
        _share(
            sum(text.startswith(("What", "Who", "How", "Whether")) for text in texts), len(texts)
        ),
        f"{counts.code / max(1, counts.comments):.0f}",
        _share(counts.number("one-use"), counts.private),
        str(counts.number("tuple", "swap")),
        str(counts.number("nested if")),
        str(counts.number("import")),
        str(counts.number("own import")),
    ]


def begins_with_verb(text: str) -> bool:
    """Tell whether the first word is one of `VERBS`, in the imperative or with an s."""
    words = re.findall(r"[A-Za-z]+", text)
    word = words[0].lower() if words else ""
    return bool({word, word.removesuffix("s"), word.removesuffix("es")} & set(VERBS.split()))


def _share(part: int, total: int) -> str:
    return f"{100 * part / max(1, total):.1f}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Lay rows out as a table of Markdown, the first row its head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    return "\n".join(
        [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rooms", nargs="*", help="rooms to show; without, all of them")
    parser.add_argument("--root", type=Path, default=PACKAGE, help="the package's folder")
    parser.add_argument("--list", action="store_true", help="print every place that is counted")
    arguments = parser.parse_args()
    rooms = measure(arguments.root)
    package = Counts()
    for counts in rooms.values():
        package.add(counts)
    shown = {room: rooms[room] for room in arguments.rooms or rooms}
    if arguments.list:
        for counts in shown.values():
            for place in counts.places:
                print(f"{place.file}:{place.line}: {place.measure}: {place.text}")
    rows = [row_of(room, counts) for room, counts in shown.items()]
    print(table([list(COLUMNS), *rows, row_of("package", package)]))


if __name__ == "__main__":
    main()
