"""What the user calls a graph's inputs. AOTAutograd numbers them (``primals_4``); errors say ``self.table.weight``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule, Node

NAME = "zefuse_name"  # in a placeholder's meta
_MEMBER = re.compile(r"""\.(?:_modules|_parameters|_buffers)\['([^']+)'\]""")


def of_dynamo(gm: GraphModule) -> list[str]:
    """Of Dynamo's graph, or one that the caller traced, by position."""
    return [_of_source(node) or str(node.target) for node in gm.graph.find_nodes(op="placeholder")]


def note(gm: GraphModule, names: Sequence[str]) -> None:
    """Of AOTAutograd's graph, whose inputs say which of Dynamo's they are."""
    for node in gm.graph.find_nodes(op="placeholder"):
        if name := _described(node.meta.get("desc"), names):
            node.meta[NAME] = name


def shown(node: Node) -> str:
    return node.meta.get(NAME) or node.name


def _of_source(node: Node) -> str:
    source = getattr(node, "_dynamo_source", None)
    name: Any = getattr(source, "name", "")
    name = name() if callable(name) else name
    # L['self']._modules['table']._parameters['weight']
    name = re.sub(r"^[LG]\['(\w+)'\]", r"\1", name)
    return _MEMBER.sub(r".\1", name)


def _described(what: Any, names: Sequence[str]) -> str:
    kind = type(what).__name__  # torch 2.11 has not all of them
    if kind == "PlainAOTInput":
        return names[what.idx] if what.idx < len(names) else ""
    if kind in ("ParamAOTInput", "BufferAOTInput"):
        return str(what.target)
    if kind == "TangentAOTInput":
        number = getattr(what.output, "idx", None)
        return "an output's gradient" if number is None else f"the gradient of output {number}"
    if kind == "SubclassGetAttrAOTInput" and (base := _described(what.base, names)):
        return f"{base}.{what.attr}"
    if kind in ("ViewBaseAOTInput", "SyntheticBaseAOTInput") and (base := _described(what.base_of, names)):
        return f"the base of {base}"
    return ""
