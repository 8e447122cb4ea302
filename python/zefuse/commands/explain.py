"""``zefuse explain``: the kernels, calls and fallbacks of a package, or of a model that a function makes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zefuse.explaining.explanation import Explanation


def arguments(parser: argparse.ArgumentParser) -> None:
    from zefuse.commands import factories

    parser.add_argument("package", help=f"a package; or {factories.HELP}")
    parser.add_argument(
        "--target",
        metavar="NAME",
        help="of a package the plan for this target alone; of a model a GPU, such as bmg-g21",
    )
    parser.add_argument("--no-grad", action="store_true", help="of a model: inference, without its backward")
    parser.add_argument(
        "--html", metavar="FILE", help="of a model: also write a page with the graphs and each kernel's code"
    )
    parser.add_argument("--json", action="store_true", help="plain data instead of tables")


def run(args: argparse.Namespace) -> None:
    found = _of_model(args) if _names_a_factory(args.package) else _of_package(args)
    if args.json:
        import json

        plans = [{"plan_for": title, **each.to_dict()} for title, each in found]
        print(json.dumps(plans[0] | ({"plans": plans} if len(plans) > 1 else {})))
        return
    from rich.console import Console

    console = Console()
    for title, explanation in found:
        if len(found) > 1:
            console.print(f"\nplan for {title}", style="bold", markup=False)
        console.print(explanation)


def _names_a_factory(name: str) -> bool:
    import os
    import re

    return re.fullmatch(r".*:[A-Za-z_]\w*", name) is not None and not os.path.exists(name)


def _of_package(args: argparse.Namespace) -> list[tuple[str, Explanation]]:
    from zefuse import reports
    from zefuse.commands import file_kinds
    from zefuse.commands.command_parser import suggestion
    from zefuse.errors import InvalidArgumentError, NotFoundError
    from zefuse.explaining.explanation import Explanation

    path = file_kinds.package(args.package, "explain")
    if args.html or args.no_grad:
        raise InvalidArgumentError(
            "explain: --html and --no-grad are for a model (FILE.py:function), not for a package"
        )
    package = reports.ask("package", path)
    plans = [*package["plans"], *package["captured"]]
    known = list(dict.fromkeys(plan["target"] for plan in plans))
    if args.target is not None:
        plans = [plan for plan in plans if plan["target"] == args.target]
        if not plans:
            raise NotFoundError(
                f"explain: {args.package!r} has no plan for {args.target!r}{suggestion(args.target, known)} (it has: "
                f"{', '.join(known)})"
            )
    # The processor's first, as load() takes it.
    plans.sort(key=lambda plan: plan["target"] != "cpu")
    found = []
    for plan in plans:
        explanation = Explanation.of(reports.plan(path, plan["section"]))
        explanation.device = plan["target"]
        found.append((plan["target"], explanation))
    return found


def _of_model(args: argparse.Namespace) -> list[tuple[str, Explanation]]:
    from zefuse.commands import factories

    factories.check_name(args.package, "explain")

    import torch

    from zefuse.checking.subject import Subject
    from zefuse.explaining.explanation import explain

    made = factories.model_of(args.package, "explain")
    subject = Subject.of(made.model, made.inputs, made.kwargs)
    subject.require_eager()
    with torch.set_grad_enabled(not args.no_grad):
        explanation = explain(subject.model, *subject.args, target=args.target, **subject.kwargs)
    if args.html:
        explanation.save(args.html)
    return [(args.target or "cpu", explanation)]
