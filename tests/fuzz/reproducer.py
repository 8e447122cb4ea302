"""A failing program as Python source that runs by itself and that a test can hold."""

from __future__ import annotations

from columns import BY_NAME
from program import Program


def reproducer(program: Program, finding: str) -> str:
    column = BY_NAME[program.column]
    lines = [f"# {line}" for line in finding.strip().splitlines()[:6]]
    lines += ["import os", ""] if column.device != "cpu" else []
    if column.device != "cpu":
        lines.append(f'os.environ["ZEFUSE_CPU_DRIVER_AS"] = "{column.poses_as}"')
    lines += ["import torch", "import torch.nn.functional as F"]
    if column.inputs == "subclass":
        lines.append("from torch.testing._internal.two_tensor import TwoTensor")
    lines += ["", "", program.make_inputs_source(), "", program.function_source()]
    options = f', options={{"device": "{column.device}"}}' if column.device != "cpu" else ""
    if column.direct:
        lines += [
            "# without Dynamo: from zefuse.backend import zefuse; zefuse(torch.fx.symbolic_trace(function), inputs)(*inputs)"
        ]
    lines += ["", f'compiled = torch.compile(function, backend="zefuse", dynamic={program.dynamic}{options})']
    no_grad = program.settings.get("no_grad") and not column.training
    lines.append("torch.set_grad_enabled(False)" if no_grad else "")
    for sizes in program.sizes:
        arguments = ", ".join(f"{name}={size}" for name, size in sizes.items())
        lines += [
            f"theirs, ours = make_inputs({arguments}), make_inputs({arguments})",
            "torch.manual_seed(0)  # both draw the same random numbers",
            "expected = function(*theirs)",
            "torch.manual_seed(0)",
            "actual = compiled(*ours)",
        ]
        if column.training:
            lines += [
                "for outputs in (expected, actual):",
                "    sum((out * 1.25).sum() for out in outputs if out.requires_grad).backward()",
                "theirs, ours = ([x.grad for x in inputs] for inputs in (theirs, ours))",
            ]
        lines += ["print(expected, actual, theirs, ours, sep='\\n')"]
    return "\n".join(lines) + "\n"
