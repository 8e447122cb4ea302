"""A chat template as texts around messages, for programs without Jinja (a package's, in C++).

A template is a program; what most of them write around a user's message does not depend on the message. These texts are found by
rendering conversations with marks in place of messages, and kept only where they give the template's own tokens again.
"""

from __future__ import annotations

from typing import Any

_USER, _ASSISTANT, _USER_AGAIN = "What is 1?", "It is one.", "Then what is 2?"


def texts_around(tokenizer: Any) -> dict[str, str] | None:
    """``before`` and ``after`` the first message; ``between``: from an answer's end to the next message, absent where the template
    rewrites what came before it. None: the tokenizer has no template, or one of another kind."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    first = {"role": "user", "content": _USER}
    rendered = _rendered(tokenizer, [first])
    if rendered is None or rendered.count(_USER) != 1:
        return None
    before, after = rendered.split(_USER)
    texts = {"before": before, "after": after}
    for message in ("a", "Two lines,\n  the second {{ indented }}"):
        if _rendered(tokenizer, [{"role": "user", "content": message}]) != before + message + after:
            return None
    # Tokens, too: a template's text is tokenized as it is, without what a tokenizer puts around one.
    ids = tokenizer.apply_chat_template([first], add_generation_prompt=True, return_dict=True)["input_ids"]
    if list(ids) != tokenizer.backend_tokenizer.encode(rendered, add_special_tokens=False).ids:
        return None
    second = [first, {"role": "assistant", "content": _ASSISTANT}, {"role": "user", "content": _USER_AGAIN}]
    whole, start = _rendered(tokenizer, second), before + _USER + after + _ASSISTANT
    if whole is not None and whole.startswith(start) and whole.endswith(_USER_AGAIN + after):
        texts["between"] = whole[len(start) : len(whole) - len(_USER_AGAIN + after)]
    return texts


def _rendered(tokenizer: Any, messages: list[dict[str, str]]) -> str | None:
    from jinja2 import TemplateError

    try:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    except TemplateError:  # what the template itself raises for conversations that it does not take
        return None
    return str(text)
