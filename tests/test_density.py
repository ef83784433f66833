"""Code has room to breathe.

A limit on the length of files and functions pushes code into dense expressions, which are harder to read
than a longer function. These checks count decisions instead. The model codebases of the field have 6 to 20
branches per 100 lines of functions; a reader can follow about a dozen paths through one function.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pluribus

SOURCE = Path(pluribus.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

MOST_COMPLEX = 12
MOST_BRANCHES = 25
# A short file has one dense function and no room to average it out.
COUNTED_FROM = 100
FEWEST_COMMENTS = 8

BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.IfExp,
    ast.ExceptHandler,
    ast.comprehension,
    ast.match_case,
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
RIDDLES = ("What ", "Of ", "Whether ", "Where ")


def count_branches(node):
    """Return how many decisions a piece of code takes; `a and b and c` takes two besides its statement."""
    count = 0
    for child in ast.walk(node):
        count += isinstance(child, BRANCHES)
        if isinstance(child, ast.BoolOp):
            count += len(child.values) - 1
    return count


def outermost_functions(node) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield functions and methods, but not those defined inside of others."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FUNCTIONS):
            yield child
        else:
            yield from outermost_functions(child)


@functools.cache
def parse(file):
    return ast.parse(file.read_text(encoding="utf-8"))


def test_count_branches_counts_every_kind():
    code = "def f(x):\n    if x and y or z:\n        return [a for a in b if c]\n    return 1 if x else 2"
    # if, and, or, comprehension, conditional expression
    assert count_branches(ast.parse(code)) == 5


def test_functions_are_simple():
    offenders = []
    for file in FILES:
        for node in ast.walk(parse(file)):
            if isinstance(node, FUNCTIONS) and 1 + count_branches(node) > MOST_COMPLEX:
                offenders.append(f"{file.relative_to(SOURCE)}:{node.lineno} {node.name}")
    assert offenders == []


def test_files_are_not_dense():
    offenders = []
    for file in FILES:
        functions = list(outermost_functions(parse(file)))
        lines = sum(function.end_lineno - function.lineno + 1 for function in functions)
        density = 100 * sum(map(count_branches, functions)) / max(lines, 1)
        if lines >= COUNTED_FROM and density > MOST_BRANCHES:
            offenders.append(f"{file.relative_to(SOURCE)}: {density:.1f}")
    assert offenders == []


def test_comments_give_reasons():
    lines = [line.strip() for file in FILES for line in file.read_text(encoding="utf-8").splitlines()]
    comments = sum(line.startswith("#") for line in lines)
    assert 1000 * comments / len(lines) >= FEWEST_COMMENTS


def test_docstrings_are_no_riddles():
    offenders = []
    for file in FILES:
        for node in ast.walk(parse(file)):
            if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Module)):
                text = ast.get_docstring(node) or ""
                if text.startswith(RIDDLES):
                    offenders.append(f"{file.relative_to(SOURCE)}: {text.splitlines()[0]}")
    assert offenders == []
