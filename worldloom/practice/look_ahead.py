"""Histories that are imagined side by side; those with the same actions are one."""

import math
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from worldloom.agents.base import Agent, Decision, Finished
from worldloom.errors import ContextOverflow
from worldloom.lm.base import WorldSession
from worldloom.protocol import heard
from worldloom.trajectory import Terminal


class Imagined(NamedTuple):
    """A step to take, what is expected to follow, and the agent as it is after saying it."""

    decision: Decision
    observation: str
    agent: Agent


@dataclass
class Node:
    """An imagined history: its session, the agents who came this way, and what they see now.

    ``logprob`` is that of all answers on the way, 0 where a model does not tell.
    """

    session: WorldSession
    agents: list[Agent]
    observation: str
    steps: tuple[Imagined, ...] = ()
    logprob: float = 0.0
    terminal: Terminal | None = None

    @property
    def trust(self) -> float:
        """The probability of all answers on the way."""
        return math.exp(min(self.logprob, 0.0))


class Asked(NamedTuple):
    """An action to imagine, by whom it was said, and with what thought."""

    node: Node
    agents: list[Agent]
    decision: Decision


def rank(node: Node) -> tuple[int, float]:
    """How promising a history is while no success is foreseen: how many different things it has seen, then its
    probability. A success is worth its probability alone; see ``Planner``."""
    return len({step.observation for step in node.steps}), node.logprob


def expand(
    nodes: Sequence[Node], branch: int, draw: random.Random, threads: ThreadPoolExecutor, others: Sequence[str] = ()
) -> list[Asked]:
    """What the agents of each history do next, each action once; one that has nothing more to do is left out.

    Args:
        branch: into how many each agent is copied first.
        draw: gives the copies their seeds.
        others: actions that all agents but the first are made to take instead of their own.
    """
    for node in nodes:
        copies = [agent.fork(draw.getrandbits(31)) for agent in node.agents for _ in range(branch - 1)]
        node.agents = [*node.agents, *copies]

    def said(node: Node) -> list[Asked]:
        decisions = [_decided(agent, node.observation) for agent in node.agents]
        for number, other in enumerate(others, 1):
            decisions[number] = Decision(other)
            node.agents[number].did(other)
        found: dict[str, Asked] = {}
        for agent, decision in zip(node.agents, decisions, strict=True):
            if decision is not None:
                found.setdefault(decision.action, Asked(node, [], decision)).agents.append(agent)
        return list(found.values())

    return [asked for of in threads.map(said, nodes) for asked in of]


def _decided(agent: Agent, observation: str) -> Decision | None:
    try:
        return agent.act(observation)
    except Finished:  # in what is imagined; the real episode goes on
        return None


def imagine(asked: Sequence[Asked], threads: ThreadPoolExecutor, root: WorldSession) -> list[Node]:
    """Imagine one step of each; those that no longer fit the model's window are left out.

    ``root`` stays where it is. What it had not read yet it reads in the first of its own steps; the others share it.
    """
    done: list[Node | None] = []
    if asked and asked[0].node.session is root:
        done, asked = [_step(asked[0], root)], asked[1:]
        if done[0]:
            done[0].session = root.fork()
            root.rewind()
    jobs = [(each, each.node.session.fork()) for each in asked]  # here: caches are shared by one thread
    return [node for node in [*done, *threads.map(lambda job: _step(*job), jobs)] if node]


def _step(asked: Asked, session: WorldSession) -> Node | None:
    node, agents, decision = asked
    try:
        text = session.step(decision.action)
    except ContextOverflow:
        return None
    observation, terminal = heard(text)
    sure = session.confidence.logprob if session.confidence else 0.0
    step = Imagined(decision, observation, agents[0].fork())
    return Node(session, agents, observation, (*node.steps, step), node.logprob + sure, terminal)
