"""Conditions on sizes, as torch prints its guards: a small language of integers, interpreted here."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable
from typing import Any

_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


@functools.lru_cache(maxsize=10_000)
def condition(text: str) -> Callable[[list[Any]], Any]:
    """Of sizes, such as ``v3 % 8 == 0 and 2 <= v3``: a function of the values at a table's nodes. Integers only; nothing is
    called. Raises ValueError for anything else."""
    return _expression(ast.parse(text, mode="eval").body, text)


def _expression(tree: ast.AST, text: str) -> Callable[[list[Any]], Any]:
    if isinstance(tree, ast.Constant) and type(tree.value) in (int, bool):
        constant = tree.value
        return lambda values: constant
    if isinstance(tree, ast.Name) and tree.id[:1] == "v" and tree.id[1:].isdecimal():
        node = int(tree.id[1:])
        return lambda values: values[node]
    if isinstance(tree, ast.BinOp) and type(tree.op) in _ARITHMETIC:
        return _binary(_ARITHMETIC[type(tree.op)], _expression(tree.left, text), _expression(tree.right, text))
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, (ast.Not, ast.USub)):
        function, of = (
            (operator.not_ if isinstance(tree.op, ast.Not) else operator.neg),
            _expression(tree.operand, text),
        )
        return lambda values: function(of(values))
    if isinstance(tree, ast.BoolOp):
        parts = [_expression(value, text) for value in tree.values]
        every = all if isinstance(tree.op, ast.And) else any
        return lambda values: every(part(values) for part in parts)
    if isinstance(tree, ast.Compare) and all(type(op) in _ARITHMETIC for op in tree.ops):
        sides = [_expression(side, text) for side in (tree.left, *tree.comparators)]
        pairs = [_binary(_ARITHMETIC[type(op)], *sides[at : at + 2]) for at, op in enumerate(tree.ops)]
        return lambda values: all(pair(values) for pair in pairs)
    if (
        isinstance(tree, ast.Call)
        and isinstance(tree.func, ast.Name)
        and tree.func.id in ("max", "min")
        and not tree.keywords
    ):
        choose: Callable[..., Any] = max if tree.func.id == "max" else min
        arguments = [_expression(each, text) for each in tree.args]
        return lambda values: choose(each(values) for each in arguments)
    raise ValueError(f"torch guards sizes by {text}")


def _binary(
    function: Callable[[Any, Any], Any], left: Callable[[list[Any]], Any], right: Callable[[list[Any]], Any]
) -> Callable[[list[Any]], Any]:
    return lambda values: function(left(values), right(values))
