"""The kinds of programs: where they run, how they are compiled and what they are made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    name: str
    share: int  # of 100 graphs
    device: str = "cpu"
    poses_as: str = "gpu"  # ZEFUSE_CPU_DRIVER_AS of the process
    direct: bool = False  # AOTAutograd on a traced graph, without Dynamo: half the time
    training: bool = False
    dynamic: bool = False
    inputs: str = "dense"  # "complex", "jagged", "subclass"
    chains: bool = False  # of views of one computed value


COLUMNS = [
    Column("direct", 22, direct=True),
    Column("infer", 14),
    Column("train", 12, training=True),
    Column("direct-train", 8, direct=True, training=True),
    Column("dynamic", 13, dynamic=True),
    Column("dynamic-train", 6, dynamic=True, training=True),
    Column("gpu", 9, device="gpu:0", direct=True),
    Column("gpu-train", 2, device="gpu:0", training=True),
    Column("gpu-dynamic", 2, device="gpu:0", dynamic=True),
    Column("integrated", 2, device="gpu:0", poses_as="integrated-gpu", direct=True),
    Column("integrated-usm", 2, device="gpu:0", poses_as="integrated-gpu-usm", direct=True),
    Column("complex", 3, inputs="complex"),
    Column("subclass", 3, inputs="subclass"),
    Column("jagged", 2, inputs="jagged"),
]
# Run where they are asked for by name: the others' graphs keep their numbers.
CHAINS = [
    Column("chains", 2, direct=True, chains=True),
    Column("chains-dynamic", 4, dynamic=True, chains=True),
]
BY_NAME = {column.name: column for column in (*COLUMNS, *CHAINS)}


def column_of(number: int, names: list[str]) -> Column:
    """Of a graph by its number, so that a run that is cut short has had its share of each."""
    chosen = [BY_NAME[name] for name in names]
    total = sum(column.share for column in chosen)
    place = number * 61 % total if total % 61 else number * 67 % total  # neighbours are of different columns
    for column in chosen:
        if place < column.share:
            return column
        place -= column.share
    raise AssertionError(number)
