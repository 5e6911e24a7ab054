"""Logs of a shop's support desk, made by hand: two conversations on each of eight orders, and what is to be skipped."""

import json
from pathlib import Path
from typing import Any

from tests.ingest.samples import DONE, FOUND, GOODBYE, OPENAI_TOOLS, POLICY, QUESTION, THANKS, openai_call

TASKS, TRIALS = 8, 2
MAIL, NAME = "mara.okonjo@example.com", "Mara Okonjo"


def conversation(task: int, trial: int) -> dict[str, Any]:
    """One that ends well at the first trial, and badly at the second."""
    look = {"name": "get_order", "arguments": {"id": task}}
    cancel = {"name": "cancel", "arguments": {"id": task}}
    messages = [
        {"role": "system", "content": POLICY},
        {"role": "user", "content": f"Cancel order {task}, I am {NAME}, {MAIL}."},
        openai_call(look, "c1"),
        {"role": "tool", "tool_call_id": "c1", "content": FOUND.replace("17", str(task))},
        openai_call(look, "c2"),
        {"role": "tool", "tool_call_id": "c2", "content": FOUND.replace("17", str(task))},
        {"role": "assistant", "content": QUESTION},
        {"role": "user", "content": f"Yes, trial {trial}."},
        openai_call(cancel, "c3"),
        {"role": "tool", "tool_call_id": "c3", "content": DONE.replace("17", str(task))},
        {"role": "assistant", "content": GOODBYE},
        {"role": "user", "content": THANKS},
    ]
    about = {"customer": f"customer-{task % 4}@example.com", "at": f"2026-01-{task + 1:02d}T10:00:00Z"}
    return {"task_id": f"order-{task}", "messages": messages, "tools": OPENAI_TOOLS, "success": trial == 0,
            "metadata": about}  # fmt: skip


def write_logs(path: Path) -> None:
    """Sixteen conversations of five steps, a damaged line, and a conversation in which no agent acts."""
    rows = [json.dumps(conversation(task, trial)) for task in range(TASKS) for trial in range(TRIALS)]
    silent = {"messages": [{"role": "user", "content": "Hello?"}], "tools": OPENAI_TOOLS}
    path.write_text("\n".join([*rows[:3], '{"broken": ', *rows[3:], json.dumps(silent)]) + "\n")
