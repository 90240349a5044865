"""Whether what a user sees after a fault is right: the true numbers, or one line that names the file."""

from __future__ import annotations

from typing import Any

from faults.warm import Ended


def one_line(text: str) -> bool:
    """Whether an error is what a user should see: one line of fednb's."""
    lines = [line for line in text.splitlines() if line.strip()]
    return len(lines) == 1 and lines[0].startswith("fednb: ")


def differences(ended: Ended, truth: dict[str, Any]) -> Any:
    """The answers that are not the true ones; where there are none, the error."""
    if not ended.value:
        return ended.err[-300:]
    return {name: ended.value.get(name) for name in truth if ended.value.get(name) != truth[name]}


def wrong(answers: dict[str, Any], truth: dict[str, Any], name: str) -> list[str]:
    """Where an answer is neither the true one nor one line with the damaged file's name; another number is SILENT."""
    found = []
    for question, true in truth.items():
        answer = answers.get(question, {"error": f"not asked, because of {name}"})
        if isinstance(answer, dict) and "error" in answer:
            if name not in answer["error"] or "\n" in answer["error"]:
                found.append(f"{question}: its error has no path, or more lines than one: {answer['error'][:300]}")
        elif isinstance(answer, dict) and "traceback" in answer:
            found.append(f"{question}: {answer['type']} {answer['traceback'][:300]}")
        elif answer != true:
            found.append(f"{question}: SILENT {str(answer)[:100]}")
    return found
