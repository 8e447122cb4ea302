"""The process that runs graphs: a program, or a seed and a column to make one from, to what became of it."""

from __future__ import annotations

from typing import Any

from serve import Answer, serve


def prepare() -> Answer:
    from check import alone, check
    from columns import BY_NAME
    from generate import generate
    from program import Program

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        if "seed" in question:
            program = generate(question["seed"], BY_NAME[question["column"]])
            if question.get("only_program"):
                return {"program": program.to_json()}
            result = check(program)
            if result["status"] == "wrong":
                result["program"] = program.to_json()
            return result
        program = Program.from_json(question["program"])
        return alone(program, question["alone"]) if "alone" in question else check(program)

    return answer


if __name__ == "__main__":
    serve(prepare)
