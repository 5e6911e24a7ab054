"""What GRPO learns from: whole episodes that the policy plays with the weights that it has just been given."""

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from worldloom.agents import AgentSpec
from worldloom.agents.policy import PolicyAgent
from worldloom.envs.worker import Job
from worldloom.lm.session import LocalLM, PolicySession
from worldloom.practice.guard import Guard, Verdict, share
from worldloom.practice.place import Ground, steps_of
from worldloom.rollouts import AT_ONCE, asked
from worldloom.runs import Log
from worldloom.trajectory import Trajectory, read

if TYPE_CHECKING:
    from worldloom.practice.grpo import GrpoConfig


class Rollouts:
    """Plays the episodes that TRL asks for, with the weights that it has just trained."""

    def __init__(
        self, lm: LocalLM, ground: Ground, split: str, config: "GrpoConfig", rollouts: Log, updates: Log,
        guard: Guard | None,
    ):  # fmt: skip
        self.lm, self.ground, self.split, self.config = lm, ground, split, config
        self.rollouts, self.updates, self.guard = rollouts, updates, guard
        self.since: list[Trajectory] = []  # the guard's last look
        self.stopped: str | None = None
        self.clock = time.monotonic()  # the last update

    def __call__(self, tasks: Sequence[str], trainer: Any) -> dict[str, list[Any]]:
        """TRL's ``rollout_func``: an episode for each task id, of which each comes ``samples`` times."""
        self.lm.take(trainer.accelerator.unwrap_model(trainer.model).state_dict())
        update = trainer.state.global_step + 1
        agents = [self._agent(update, number) for number in range(len(tasks))]
        with ThreadPoolExecutor(AT_ONCE) as threads:
            played = list(threads.map(self._play, tasks, agents))
        self._keep(update, played)
        told = [_tokens(agent, self.lm) for agent in agents]
        return {
            "prompt_ids": [prompt for prompt, _, _ in told],
            "completion_ids": [said for _, said, _ in told],
            "env_mask": [mask for _, _, mask in told],
            "logprobs": None,  # type: ignore[dict-item]  # the trainer computes them itself
            "outcome_reward": [reward(t) for t in played],
        }

    def _agent(self, update: int, number: int) -> PolicyAgent:
        draw = (update - 1) * self.config.tasks_per_update * self.config.samples + number
        return PolicyAgent.of(self.lm, self.config.temperature, draw)

    def _play(self, task: str, agent: PolicyAgent) -> Trajectory:
        job = Job(task, AgentSpec(agent.name, agent.params), self.config.seed, self.split, self.config.max_steps)
        return asked(self.ground.play_one(job, agent))

    def _keep(self, update: int, played: Sequence[Trajectory]) -> None:
        for episode in played:
            self.rollouts.append(episode.model_copy(update={"update": update}).to_json())
        won = sum(t.outcome == "success" for t in played)
        seconds, self.clock = time.monotonic() - self.clock, time.monotonic()
        told = {"at": update, "reward": share(won, len(played)), "steps": steps_of(played), "seconds": seconds}
        self.updates.append(json.dumps(told))
        self.since += played

    def go_on(self, update: int) -> None:
        """Take up what was played since the guard's last look, of a run that goes on after ``update``."""
        if self.guard is None or not update % self.guard.config.every:
            return
        of_one, played = self.config.tasks_per_update * self.config.samples, read(self.rollouts.path)
        for at in range(update - update % self.guard.config.every + 1, update + 1):
            self.since += [t for t in played if (t.model_extra or {}).get("update") == at][-of_one:]

    def look(self, update: int) -> Verdict | None:
        """What the guard says; None where it does not look."""
        if self.guard is None or update % self.guard.config.every:
            return None
        verdict = self.guard.check(update, self.since)
        if verdict == "stop":
            self.stopped = f"update {update}: too many imagined successes are false in the real environment"
        self.since = []
        return verdict

    def passed(self) -> int:
        """After how many updates the guard last let training go on."""
        checks = self.guard.checks if self.guard else []
        return max((check["at"] for check in checks if check["verdict"] != "stop"), default=0)


def reward(episode: Trajectory) -> float | None:
    """1 for success, else 0; unknown where the episode broke, so that it teaches nothing."""
    return None if episode.error else float(episode.outcome == "success")


def rewards(outcome_reward: Sequence[float | None], **others: Any) -> list[float | None]:
    """TRL's reward function: what the environment said."""
    return list(outcome_reward)


def _tokens(agent: PolicyAgent, lm: LocalLM) -> tuple[list[int], list[int], list[int]]:
    """An episode's tokens: its beginning; what followed; and which of that the policy said."""
    session = agent.session
    if not isinstance(session, PolicySession) or not session.turns:  # it broke before the first action
        return [lm.chat.end], [lm.chat.end], [0]
    return session.ids[: session.start], session.ids[session.start :], session.spoken()
