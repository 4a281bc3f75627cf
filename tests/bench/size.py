"""Print how many lines of code, comments and tests the project has: `python tests/bench/size.py`.

A line of code holds a token that belongs to no comment, docstring (or attribute docstring) and no import. A comment line holds
nothing but a comment.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}


def uncounted(tree: ast.AST) -> Iterator[int]:
    """Lines of imports and of strings that stand alone."""
    for node in ast.walk(tree):
        alone = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        if alone or isinstance(node, ast.Import | ast.ImportFrom):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def measure(file: Path) -> Counter[str]:
    """Lines of one file by kind."""
    source = file.read_text()
    code, comments = set[int](), set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    comments -= code
    return Counter(
        files=1, lines=source.count("\n"), code=len(code - set(uncounted(ast.parse(source)))), comments=len(comments)
    )


def main() -> None:
    product, testing, tests = Counter[str](), Counter[str](), Counter[str]()
    for folder in ("trio_mcp", "transports"):
        for file in ROOT.joinpath(folder).rglob("*.py"):
            (testing if "testing" in file.parts else product).update(measure(file))
    for file in ROOT.joinpath("tests").rglob("*.py"):
        tests.update(measure(file))
    for name, counts in (("product", product), ("trio_mcp.testing", testing), ("tests", tests)):
        print(f"{name:17}", "  ".join(f"{kind} {count:,}" for kind, count in sorted(counts.items())))


if __name__ == "__main__":
    main()
