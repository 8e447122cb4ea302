"""A random program from a seed: operators are tried on real tensors, so that each step runs in eager."""

from __future__ import annotations

import random
import re
import warnings
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from columns import BY_NAME, Column
from draw import Draw, NoFit, Value
from inputs import FLOATS, OTHERS, laid_out, shared, values
from operators_chains import CHAINED, COMPUTED
from operators_images import IMAGES
from operators_layers import LAYERS
from operators_pointwise import POINTWISE
from operators_products import INDEXING, PRODUCTS
from operators_reductions import REDUCTIONS
from operators_sequences import SEQUENCES
from operators_views import VIEWS, WRITES
from program import Input, Program, Step

MOST_ELEMENTS = 4096
FAMILIES = [
    (5.0, POINTWISE),
    (3.0, REDUCTIONS),
    (4.0, VIEWS),
    (1.2, PRODUCTS),
    (1.5, INDEXING),
    (1.3, WRITES),
    (1.0, LAYERS),
    (0.8, IMAGES),
    (1.0, SEQUENCES),
]
SIZES = [2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 31, 33, 64]
NAMESPACE: dict[str, Any] = {"torch": torch, "F": F}


def generate(seed: str, column: Column) -> Program:
    rng = random.Random(f"{seed} {column.name}")
    # Half of the time some sizes stay constants, as where a user's second batch is larger: Dynamo finds out which.
    automatic = column.dynamic and rng.random() < 0.5
    sizes = _sizes(rng, column, automatic)
    program = Program(column.name, sizes, _inputs(rng, column, sizes), [], [])
    if automatic:
        program.settings["automatic"] = True
    program.sizes[:] = [_with_inputs(program, each) for each in sizes]
    tensors = run_inputs(program, program.sizes[0])
    values = [
        Value(entry.name, tensor, tensor.requires_grad)
        for entry, tensor in zip(program.inputs, tensors, strict=True)
        if isinstance(tensor, torch.Tensor)
    ]
    draw = Draw(rng, values, column.dynamic)
    if column.chains:
        _make_chain(draw, program)
    else:
        for number in range(rng.choice([1, 2, 3, 4, 6, 8, 10, 12])):
            if (made := _step(draw, f"v{number}", FAMILIES, column)) is not None:
                program.steps.append(made)
        _choose_outputs(rng, program, values)
    _keep_calls_running(rng, program)
    if rng.random() < 0.5:
        program.settings["no_grad"] = True
    return program


def doubled(value: Any) -> Any:
    """An input in double precision, with its strides."""
    if hasattr(value, "a") and hasattr(value, "__tensor_flatten__"):  # a TwoTensor
        return type(value)(doubled(value.a), doubled(value.b))
    if isinstance(value, torch.Tensor) and value.is_nested:
        return torch.nested.nested_tensor_from_jagged(value.values().to(torch.float64), value.offsets())
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or not value.is_floating_point():
        return value
    if 0 in value.stride():
        result = value.detach().to(torch.float64)
    else:
        result = torch.empty_strided(value.shape, value.stride(), dtype=torch.float64)
        with torch.no_grad():
            result.copy_(value)
    return result.requires_grad_(value.requires_grad)


def run_inputs(program: Program, sizes: dict[str, int]) -> list[Any]:
    space = dict(NAMESPACE) | {"doubled": doubled}
    if program.column == "subclass":
        from torch.testing._internal.two_tensor import TwoTensor

        space["TwoTensor"] = TwoTensor
    exec(program.make_inputs_source(), space)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return space["make_inputs"](**sizes)


def _keep_calls_running(rng: random.Random, program: Program) -> None:
    """Most later calls that eager refuses, as the program holds a number that only the first call's sizes fit, get as many of those
    back as they need: what comes after a refusal is not compared."""
    first = program.sizes[0]
    if len(program.sizes) == 1 or rng.random() < 0.1 or not _runs(program, first):
        return
    for sizes in program.sizes[1:]:
        names = rng.sample(sorted(sizes), len(sizes))
        while names and not _runs(program, sizes):
            name = names.pop()
            sizes[name] = first[name]


def _runs(program: Program, sizes: dict[str, int]) -> bool:
    space = dict(NAMESPACE)
    exec(program.function_source(""), space)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            space["function"](*run_inputs(program, sizes))
    except Exception:
        return False
    return True


def _with_inputs(program: Program, sizes: dict[str, int]) -> dict[str, int]:
    """These sizes, without those of zero where an input is a part of another (``x0[0]``)."""
    try:
        run_inputs(program, sizes)
    except IndexError:
        return {name: max(size, 1) for name, size in sizes.items()}
    return sizes


def _sizes(rng: random.Random, column: Column, automatic: bool) -> list[dict[str, int]]:
    names = "ABCDE"
    small = rng.random() < 0.6
    pool = [size for size in SIZES if size <= 9] if small else SIZES
    first = dict(zip(names, rng.sample(pool, 5), strict=True))
    if not column.dynamic:
        for name in names:
            if rng.random() < 0.12:
                first[name] = rng.choice([1, 1, 1, 0])
        return [first]
    fixed = rng.sample(names, rng.choice([2, 3, 4]))
    result = [first]
    for special in (None, rng.choice([0, 1, None])):
        sizes = dict(zip(names, rng.sample(SIZES[:11], 5), strict=True))
        if special is not None:
            sizes[rng.choice(names)] = special
        if automatic:
            sizes |= {name: first[name] for name in fixed}
        result.append(sizes)
    return result


def _dims(rng: random.Random, sizes: dict[str, int]) -> list[str]:
    rank = rng.choice([0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 5])
    while True:
        # The same trailing dims again and again, so that inputs broadcast with each other.
        dims = list("ABCDE")[-rank:] if rank and rng.random() < 0.6 else [rng.choice("ABCDE") for _ in range(rank)]
        dims = [("1" if rng.random() < 0.1 else dim) for dim in dims]
        count = 1
        for dim in dims:
            count *= max(sizes.get(dim, 1), 1)
        if count <= MOST_ELEMENTS:
            return dims
        rank -= 1


def _inputs(rng: random.Random, column: Column, calls: list[dict[str, int]]) -> list[Input]:
    sizes = {name: max(call[name] for call in calls) for name in calls[0]}
    inputs: list[Input] = []
    ranks: dict[str, int] = {}
    jagged_dims = rng.choice(["E", "D, E"])
    for number in range(rng.randint(1, 4)):
        name = f"x{number}"
        dtype = rng.choice(FLOATS) if rng.random() < 0.75 or number == 0 else rng.choice(OTHERS)
        dims = _dims(rng, sizes)
        leaf = column.training and dtype.startswith(("float", "bfloat")) and (number == 0 or rng.random() < 0.6)
        if column.inputs == "jagged":
            text = _jagged(rng, dtype if dtype.startswith(("float", "bfloat")) else "float32", jagged_dims, number)
        elif column.inputs == "subclass" and (number == 0 or rng.random() < 0.5):
            dtype = "float32"
            made = values(rng, ", ".join(dims), dtype)
            text = f"(lambda t: TwoTensor(t.clone(), t.clone()))({made})"
        elif number and not leaf and ranks and rng.random() < 0.15:
            of = rng.choice(list(ranks))
            text = shared(rng, of, ranks[of])
        else:
            if column.inputs == "complex" and (number == 0 or rng.random() < 0.5):
                dtype = rng.choice(["complex64", "complex64", "complex128"])
            text = laid_out(
                rng, lambda shape, dtype=dtype: values(rng, shape, dtype), dims, not dtype.startswith(("bool", "uint"))
            )
            if dtype.startswith("complex") and rng.random() < 0.3:
                text += rng.choice([".conj()", ".conj().imag", ".real"])
            if leaf:
                text = f"{text}.detach().requires_grad_()"
            else:
                ranks[name] = len(dims)
        inputs.append(Input(name, text, rng.randrange(1000)))
    return inputs


def _jagged(rng: random.Random, dtype: str, dims: str, number: int) -> str:
    if number and rng.random() < 0.6:
        return f"torch.nested.nested_tensor_from_jagged(torch.randn(x0.values().shape).to(torch.{dtype}), x0.offsets())"
    rows = [rng.choice([1, 2, 3, 5]) for _ in range(rng.randint(1, 4))]
    parts = ", ".join(f"torch.randn({count}, {dims})" for count in rows)
    return f"torch.nested.nested_tensor([{parts}], layout=torch.jagged, dtype=torch.{dtype})"


def _pick(rng: random.Random, rows: list[tuple[float, Any]]) -> Any:
    weights = list(accumulate(weight for weight, _ in rows))
    return rng.choices([row for _, row in rows], cum_weights=weights)[0]


def _make_chain(draw: Draw, program: Program) -> None:
    """A computed value, views of it and of each other; two or three of them are the outputs."""
    first = _step(draw, "v0", [(1, COMPUTED)], BY_NAME[program.column])
    program.steps += [first] if first else []
    if made := [value for value in draw.values if value.name == "v0"]:
        draw.values = made
    for number in range(1, draw.choice([3, 4, 5, 6, 7])):
        if (step := _step(draw, f"v{number}", [(1, CHAINED)], BY_NAME[program.column])) is not None:
            program.steps.append(step)
    names = [value.name for value in draw.values]
    program.outputs = list(dict.fromkeys([names[-1], *draw.rng.sample(names, min(2, len(names)))]))
    draw.rng.shuffle(program.outputs)


def _step(draw: Draw, name: str, families: list[tuple[float, Any]], column: Column) -> Step | None:
    """Several tries: an entry may find no value, or eager may refuse what it wrote."""
    for _ in range(30):
        family = _pick(draw.rng, families)
        if column.inputs in ("jagged", "subclass") and family is not POINTWISE and draw.rng.random() < 0.6:
            continue
        try:
            text, of = _pick(draw.rng, family)(draw)
        except NoFit:
            continue
        except Exception:
            if column.inputs == "dense":
                raise
            continue  # an entry that asks what a nested tensor cannot say
        step = Step(name, text, [value.name for value in of])
        space = dict(NAMESPACE) | {value.name: value.tensor for value in of}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(step.source(), space)
        except Exception:
            if draw.rng.random() < 0.004:  # what eager refuses is to be refused
                return step
            continue
        made = space[name]
        if isinstance(made, torch.Tensor) and made.numel() > 4 * MOST_ELEMENTS:
            continue
        if isinstance(made, torch.Tensor):
            draw.values.append(Value(name, made))
            step.like = _like(made)
        return step
    return None


def _like(tensor: torch.Tensor) -> str | None:
    """The text of an input that can stand for a result when a program is shrunk."""
    if type(tensor) is not torch.Tensor or tensor.is_nested:
        return None
    shape = tuple(tensor.shape)
    if tensor.is_floating_point() or tensor.is_complex():
        return f"torch.randn({shape}, dtype=torch.{str(tensor.dtype)[6:]})"
    low, high = (0, 2) if tensor.dtype == torch.bool else (0, 10)
    return f"torch.randint({low}, {high}, {shape}).to(torch.{str(tensor.dtype)[6:]})"


def _choose_outputs(rng: random.Random, program: Program, values: list[Value]) -> None:
    """What nothing reads is an output, some more are, seldom an input."""
    read = {name for step in program.steps for name in re.findall(r"\w+", step.source().partition("=")[2])}
    made = [value.name for value in values if value.name.startswith("v")]
    outputs = [name for name in made if name not in read or rng.random() < 0.15]
    if rng.random() < 0.08:
        outputs.append(rng.choice(program.inputs).name)
    if not outputs:
        outputs = made[-1:] or [program.inputs[0].name]
    failing = [step.name for step in program.steps if step.name not in made and "_(" not in step.text]
    program.outputs = outputs + failing
    rng.shuffle(program.outputs)
