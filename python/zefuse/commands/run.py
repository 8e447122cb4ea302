"""``zefuse run``: calls a package, or a model that a function makes, and says what it returned."""

from __future__ import annotations

import argparse
from typing import Any


def arguments(parser: argparse.ArgumentParser) -> None:
    from zefuse.commands import factories

    parser.add_argument("package", help=f"a package; or {factories.HELP}")
    parser.add_argument(
        "--inputs",
        metavar="FILE",
        help="what torch.save wrote: a tensor, a tuple of arguments or a dict of keyword arguments; default: a package's inputs are "
        "drawn (0 for integers), a model's are its function's",
    )
    parser.add_argument("--device", default="cpu", help="cpu (default), or gpu:0")
    parser.add_argument("--output", metavar="FILE", help="where the result goes, by torch.save")
    parser.add_argument("--json", action="store_true", help="plain data instead of text")


def run(args: argparse.Namespace) -> None:
    import os

    from zefuse import reports
    from zefuse.commands import factories, file_kinds
    from zefuse.errors import InvalidArgumentError, NotFoundError
    from zefuse.packages import verifying as packages

    is_model = ":" in args.package and not os.path.exists(args.package)
    if is_model:
        factories.check_name(args.package, "run")
    else:
        file_kinds.package(args.package, "run")
    if args.inputs is not None and not os.path.isfile(args.inputs):
        raise NotFoundError(f"run: no file {args.inputs!r}; write one with torch.save(inputs, path)")

    import torch

    from zefuse.checking.subject import Subject

    given = _loaded(args.inputs) if args.inputs is not None else None
    if is_model:
        made = factories.model_of(args.package, "run")
        inputs = made.inputs if given is None else given
        kwargs = made.kwargs if given is None else {}
        subject = Subject.of(made.model, inputs, kwargs)
        subject.require_eager()
        model = torch.compile(subject.model, backend="zefuse", options={"device": args.device})
    else:
        import zefuse

        if packages.is_language_model(reports.ask("package", args.package)):
            raise InvalidArgumentError(
                f"run: {args.package!r} is a language model's: zefuse generate {args.package} --prompt ..."
            )
        model = zefuse.load(args.package, options={"device": args.device})
        subject = Subject.of(model, packages.drawn_inputs(args.package) if given is None else given)
    _report(args, *_called(model, subject))


def _called(model: Any, subject: Any) -> tuple[Any, float, float]:
    """The result, and seconds of the first and of a second call."""
    import time

    import torch

    seconds = []
    result = None
    with torch.no_grad():
        for _ in range(2):
            copy = subject.copy()
            began = time.perf_counter()
            result = model(*copy.args, **copy.kwargs)
            seconds.append(time.perf_counter() - began)
    return result, seconds[0], seconds[1]


def _loaded(path: str) -> Any:
    import torch

    from zefuse.errors import DamagedError

    try:
        return torch.load(path, weights_only=True)
    except Exception as error:  # what torch raises for another file is not one class
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise DamagedError(f"run: {path!r} has no tensors of torch.save: {first}") from error


def _report(args: argparse.Namespace, result: Any, first: float, second: float) -> None:
    import torch
    from torch.utils import _pytree as pytree

    rows = []
    for path, leaf in pytree.tree_flatten_with_path(result)[0]:
        row: dict[str, Any] = {"name": "output" + pytree.keystr(path)}
        if isinstance(leaf, torch.Tensor):
            row |= {"dtype": str(leaf.dtype).removeprefix("torch."), "shape": list(leaf.shape)}
            if leaf.numel() and not leaf.is_complex():
                wide = leaf.double()
                row |= {"min": wide.min().item(), "mean": wide.mean().item(), "max": wide.max().item()}
        else:
            row["value"] = repr(leaf)
        rows.append(row)
    if args.output:
        torch.save(result, args.output)
    if args.json:
        import json

        print(json.dumps({"outputs": rows, "first_call_seconds": first, "second_call_seconds": second}))
        return
    for row in rows:
        if "value" in row:
            print(f"{row['name']}: {row['value']}")
            continue
        numbers = f", from {row['min']:.6g} to {row['max']:.6g}, mean {row['mean']:.6g}" if "mean" in row else ""
        print(f"{row['name']}: {row['dtype']}{row['shape']}{numbers}")
    print(f"first call {first * 1e3:.2f} ms, second {second * 1e3:.2f} ms")
