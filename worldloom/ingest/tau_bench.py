"""tau-bench results (Yao et al. 2024, arXiv 2406.12045) and tau2's: an episode of a support desk a record, its reward.

The customer's scenario, which tau-bench's simulated customer is given and the agent never sees, is the initial
context. The gold actions, the outputs asked for and the reward's reasons stay out: they tell the outcome.
"""

from collections.abc import Mapping
from typing import Any

from worldloom.errors import ProtocolError
from worldloom.ingest import chat
from worldloom.ingest.row import Outcome, outcome_of
from worldloom.ingest.turns import Dialogue
from worldloom.trajectory import Failure

STOP = "###STOP###"  # how the simulated customer ends
ENDING_TOOLS = ("transfer_to_human_agents",)  # tools after which the episode is over


def matches(record: Any) -> bool:
    """Results have these keys: tau-bench's, or those of one of tau2's simulations."""
    return isinstance(record, Mapping) and (
        {"task_id", "reward", "traj"} <= record.keys() or {"task_id", "reward_info", "messages"} <= record.keys()
    )


def read(record: Any) -> Dialogue:
    """One episode. One that its step limit ended, neither the customer nor a transfer, is truncated."""
    if isinstance(record, Mapping) and "messages" in record:
        return _simulation(record)
    if not isinstance(record, Mapping) or not isinstance(record.get("traj"), list):
        raise ProtocolError("has no list 'traj'")
    left_out: list[str] = []
    info = record["info"] if isinstance(record.get("info"), Mapping) else {}
    seed = record.get("trial")
    return Dialogue(
        chat.turns(record["traj"], left_out), id=str(record.get("task_id")), hidden=_scenario(info),
        outcome=_outcome(record), error=_error(info), seed=seed if isinstance(seed, int) else None, left_out=left_out,
    )  # fmt: skip


def _simulation(record: Mapping[str, Any]) -> Dialogue:
    """One of tau2's: what the customer does on a phone of their own is the world's affair, and seen by nobody else."""
    if not isinstance(record["messages"], list):
        raise ProtocolError("has no list 'messages'")
    theirs = [message for message in record["messages"] if _is_customer_s(message)]
    seen = [message for message in record["messages"] if message not in theirs]
    left_out = ["the customer's own tool calls"] if theirs else []
    rewarded = record["reward_info"] if isinstance(record.get("reward_info"), Mapping) else {}
    stopped = str(record.get("termination_reason"))
    told = outcome_of({"reward": rewarded.get("reward")})
    seed = record.get("trial")
    return Dialogue(
        chat.turns(seen, left_out), id=str(record.get("task_id")), seed=seed if isinstance(seed, int) else None,
        outcome=told if stopped in ("user_stop", "agent_stop") else Outcome("truncated", told.reward),
        left_out=left_out,
    )  # fmt: skip


def _is_customer_s(message: Any) -> bool:
    if not isinstance(message, Mapping):
        return False
    return message.get("requestor") == "user" or (message.get("role") == "user" and bool(message.get("tool_calls")))


def _scenario(info: Mapping[str, Any]) -> str | None:
    task = info.get("task")
    told = task.get("instruction") if isinstance(task, Mapping) else None
    return f"The customer: {told}" if isinstance(told, str) else None


def _outcome(record: Mapping[str, Any]) -> Outcome:
    told = outcome_of(record)
    last = record["traj"][-1] if record["traj"] and isinstance(record["traj"][-1], Mapping) else {}
    over = STOP in str(last.get("content")) or last.get("name") in ENDING_TOOLS
    return told if over else Outcome("truncated", told.reward)


def _error(info: Mapping[str, Any]) -> Failure | None:
    """What broke the run: tau-bench then writes the error in the place of the conversation."""
    return Failure(kind="tau-bench", message=str(info["error"])) if info.get("error") else None
