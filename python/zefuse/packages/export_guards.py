"""What a program of ``torch.export`` asks of its arguments, for a package: constants, ranges of sizes, relations between them.

torch states it as Python text, in three places: the program's guards, the ranges of its symbols, assertions in its graph. A
package keeps each condition as a tree (``runtime/package/guards.h`` reads and evaluates it) and as a text for its error."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.utils import _pytree as pytree

from zefuse.errors import UnsupportedError

Tree = Any  # JSON: a number, true, false, or a list that begins with a word

_OPERATORS: dict[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.And: "and",
    ast.Or: "or",
    ast.Not: "not",
    ast.USub: "neg",
}
_FUNCTIONS = {
    "math.floor": "floor",
    "math.ceil": "ceil",
    "math.trunc": "trunc",
    "math.isnan": "isnan",
    "math.sqrt": "sqrt",
    "torch._sym_sqrt": "sqrt",
    "torch.sym_float": "float",
    "torch.sym_max": "max",
    "torch.sym_min": "min",
    "float": "float",
    "int": "trunc",
    "abs": "abs",
    "max": "max",
    "min": "min",
}
_NUMBERS = {"math.inf": "inf", "math.nan": "nan", "inf": "inf"}


def guards_of(program: torch.export.ExportedProgram) -> list[dict[str, Any]]:
    """As ``{"condition": tree, "text": text}`` each. Raises UnsupportedError for a condition that no package can hold."""
    arguments = _Arguments(program)
    found: dict[str, dict[str, Any]] = {}
    for condition, text in (*arguments.constants(), *map(arguments.read, arguments.texts())):
        if condition is not True:
            found.setdefault(json.dumps(condition), {"condition": condition, "text": text})
    # The first that fails is the one that a caller reads: the plainest comes first.
    return sorted(found.values(), key=lambda guard: len(guard["text"]))


class _Arguments:
    """The user's arguments by number: what torch's texts call them, and what the user does."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self._program = program
        specs = [each for each in program.graph_signature.input_specs if each.kind is InputKind.USER_INPUT]
        self._specs = specs
        nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
        self._values = [nodes[spec.arg.name].meta.get("val") if spec.arg.name in nodes else None for spec in specs]
        self.names: list[str] = [""] * len(specs)
        self._sources: dict[str, int] = {f"L['#{number}']": number for number in range(len(specs))}
        for number, (root, rest) in self._paths(len(specs)):
            self.names[number] = root + rest
            self._sources[f"L['{root}']{rest}"] = number
            self._sources[f"L['flat_args'][{number}]"] = number
            self._sources[f"L['kwargs']['{root}']{rest}"] = number
            if match := re.fullmatch(r"(.+)_([0-9]+)", root):  # of *args
                self._sources.setdefault(f"L['{match[1]}'][{match[2]}]{rest}", number)

    def _paths(self, count: int) -> Iterator[tuple[int, tuple[str, str]]]:
        spec = self._program.call_spec.in_spec
        args, kwargs = pytree.tree_unflatten(list(range(count)), spec)
        signature = self._program.module_call_graph[0].signature
        known = (signature.forward_arg_names if signature else None) or []
        roots = [*known[: len(args)], *(f"args_{number}" for number in range(len(known), len(args)))]
        for root, value in (*zip(roots, args, strict=True), *kwargs.items()):
            for path, number in pytree.tree_leaves_with_path(value):
                yield number, (str(root), pytree.keystr(path))

    def constants(self) -> Iterator[tuple[Tree, str]]:
        for number, spec in enumerate(self._specs):
            if not isinstance(spec.arg, ConstantArgument):
                continue
            name, value = self.names[number], spec.arg.value
            leaf = ["input", number, name]
            if value is None:
                yield ["none", leaf], f"{name} = None"
            elif isinstance(value, float) and value != value:
                yield ["isnan", leaf], f"{name} = nan"
            else:
                yield ["==", leaf, _constant(value)], f"{name} = {value!r}"

    def texts(self) -> Iterator[str]:
        from torch.export._unlift import _get_input_guards_for_graph

        given = [at for at, value in enumerate(self._values) if isinstance(value, (torch.Tensor, torch.SymInt))]
        nodes = {node.name: node for node in self._program.graph.find_nodes(op="placeholder")}
        yield from _get_input_guards_for_graph(
            [nodes[self._specs[at].arg.name] for at in given],
            self._program.range_constraints,
            [(pytree.MappingKey(f"#{at}"),) for at in given],
        )
        yield from self._program._guards_code
        yield from self._assertions()

    def _assertions(self) -> Iterator[str]:
        """``torch._check`` of sizes, which the graph asserts. Those of data are no guards of arguments."""
        import sympy  # type: ignore[import-untyped]
        from torch.utils._sympy.printers import PythonPrinter

        conditions = []
        for node in self._program.graph.find_nodes(op="call_function", target=torch.ops.aten._assert_scalar.default):
            value = node.args[0].meta.get("val") if isinstance(node.args[0], torch.fx.Node) else None
            if isinstance(value, torch.SymBool):
                conditions.append(value.node.expr)
        if not conditions:
            return
        sources = self._symbols()
        for condition in conditions:
            if condition.free_symbols <= sources.keys():
                yield PythonPrinter().doprint(
                    condition.xreplace({s: sympy.Symbol(sources[s], integer=True) for s in sources})
                )

    def _symbols(self) -> dict[Any, str]:
        """Where each symbol is read, or how it follows from a size such as ``2*s0``."""
        import sympy
        from torch.utils._sympy.printers import PythonPrinter
        from torch.utils._sympy.solve import try_solve

        sizes = [
            (size.node.expr, f"L['#{number}'].size()[{dim}]")  # type: ignore[attr-defined]
            for number, value in enumerate(self._values)
            if isinstance(value, torch.Tensor)
            for dim, size in enumerate(value.shape)
            if isinstance(size, torch.SymInt)
        ]
        sizes += [
            (value.node.expr, f"L['#{number}']")
            for number, value in enumerate(self._values)
            if isinstance(value, torch.SymInt)
        ]
        sources = {expression: source for expression, source in reversed(sizes) if expression.is_Symbol}
        for expression, source in sizes:
            for symbol in expression.free_symbols - sources.keys():
                solution = try_solve(sympy.Eq(expression, sympy.Symbol(source, integer=True)), symbol)
                if len(expression.free_symbols) == 1 and solution is not None:
                    sources[symbol] = f"({PythonPrinter().doprint(solution[1])})"
        return sources

    def read(self, text: str) -> tuple[Tree, str]:
        """torch's text as a tree, and as the user reads it."""
        marked = text.replace("\n", " ")
        for source in sorted(self._sources, key=len, reverse=True):
            marked = marked.replace(source, f"_argument_{self._sources[source]}_")
        try:
            tree = ast.parse(marked, mode="eval").body
            condition = self._tree(tree)
        except (SyntaxError, ValueError) as error:
            raise UnsupportedError(
                f"zefuse compile: the program asks of its arguments what a package cannot check: {text.strip()} ({error})"
            ) from None
        return condition, self._words(ast.unparse(tree))

    def _words(self, text: str) -> str:
        return re.sub(r"_argument_(\d+)_", lambda match: self.names[int(match[1])], text)

    def _tree(self, tree: ast.AST) -> Tree:
        if isinstance(tree, ast.Constant):
            return _constant(tree.value)
        if (leaf := self._leaf(tree)) is not None:
            return leaf
        if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATORS:
            return [_OPERATORS[type(tree.op)], self._tree(tree.left), self._tree(tree.right)]
        if isinstance(tree, ast.UnaryOp) and type(tree.op) in _OPERATORS:
            return [_OPERATORS[type(tree.op)], self._tree(tree.operand)]
        if isinstance(tree, ast.BoolOp):
            return [_OPERATORS[type(tree.op)], *map(self._tree, tree.values)]
        if isinstance(tree, ast.IfExp):
            return ["if", self._tree(tree.test), self._tree(tree.body), self._tree(tree.orelse)]
        if isinstance(tree, ast.Compare) and all(type(op) in _OPERATORS for op in tree.ops):
            sides = [self._tree(side) for side in (tree.left, *tree.comparators)]
            pairs = [[_OPERATORS[type(op)], *sides[at : at + 2]] for at, op in enumerate(tree.ops)]
            return pairs[0] if len(pairs) == 1 else ["and", *pairs]
        name = ast.unparse(tree.func) if isinstance(tree, ast.Call) else ast.unparse(tree)
        if name in _NUMBERS:
            return ["real", _NUMBERS[name]]
        if isinstance(tree, ast.Call) and name in _FUNCTIONS and not tree.keywords:
            return [_FUNCTIONS[name], *map(self._tree, tree.args)]
        raise ValueError(f"no meaning is known of {self._words(ast.unparse(tree))}")

    def _leaf(self, tree: ast.AST) -> Tree | None:
        match = re.fullmatch(
            r"_argument_(\d+)_(?:\.(size|stride)\(\)\[(\d+)\]|(\.storage_offset\(\)))?", ast.unparse(tree)
        )
        if match is None:
            return None
        number, name = int(match[1]), self._words(match[0])
        if match[2]:
            return [match[2], number, int(match[3]), name]
        return ["offset" if match[4] else "input", number, name]


def _constant(value: Any) -> Tree:
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return ["real", value.hex() if value - value == 0 else str(value)]
    if isinstance(value, str):
        return ["text", value]
    raise ValueError(f"a constant of the type {type(value).__name__}")
