"""A correct environment passes; each way of breaking the contract is caught by the rule that names it."""

import math

import pytest

from tests.envs.corridor import SPLITS, Corridor
from worldloom.envs import Environment, EnvSpec
from worldloom.envs.base import Observation, StepResult
from worldloom.envs.check import Problem, check_env
from worldloom.errors import ConfigError, EnvError

ALL_RULES = [
    *("identity", "splits", "unknown task"),
    *("reset", "fresh start", "steps", "after the end", "odd actions", "determinism", "close"),
]


class Altered(Corridor):
    """The corridor with each step's result passed through ``alter``."""

    def alter(self, result: StepResult) -> StepResult:
        return result

    def step(self, action: str) -> StepResult:
        return self.alter(super().step(action))


class Marking(Altered):
    def alter(self, result):
        return result._replace(observation=f"{result.observation} [SUCCESS]") if result.terminated else result


class Unending(Corridor):
    def step(self, action):
        if not self._open:
            return StepResult("It is over.", None, True, False, {"terminal": "success"})
        return super().step(action)


class Crashing(Corridor):
    def step(self, action):
        action.encode("ascii")
        return super().step(action)


class Picky(Corridor):
    def step(self, action):
        if action not in self.admissible():
            raise ValueError(f"bad action {action[:20]!r}")
        return super().step(action)


class Confused(Altered):
    def alter(self, result):
        return result._replace(info={"terminal": "truncated"}) if result.terminated else result


class Inventive(Altered):
    def alter(self, result):
        return result._replace(info={"terminal": "won"})


class Unsure(Altered):
    def alter(self, result):
        return result._replace(reward=math.nan)


class Numb(Altered):
    def alter(self, result):
        return result._replace(terminated=int(result.terminated))


class Bare(Corridor):
    def step(self, action):
        return tuple(super().step(action))


class Blank(Corridor):
    def reset(self, task_id, seed=0):
        return super().reset(task_id, seed)._replace(text=" \n")


class Trusting(Corridor):
    def reset(self, task_id, seed=0):
        return super().reset(task_id if task_id in self.task_ids("train") else "train-0", seed)


class Careless(Corridor):
    def task_ids(self, split):
        return super().task_ids(split if split in SPLITS else "train")


class Overlapping(Corridor):
    def task_ids(self, split):
        return [*super().task_ids(split), "train-3"]


class Remembering(Corridor):
    """A key once taken stays taken."""

    has_taken = False

    def reset(self, task_id, seed=0):
        first = super().reset(task_id, seed)
        self.has_key = self.has_taken
        return first._replace(text=first.text.replace("There is a key here.", self._sight()))

    def step(self, action):
        result = super().step(action)
        self.has_taken = self.has_key
        return result


class HashOrdered(Altered):
    def alter(self, result):
        things = {"a lamp", "some dust", "one stool", "two coats", "no light", "a mirror", "old shoes"}
        return result._replace(observation=f"Here: {', '.join(things)}")


class Counting(Altered):
    """Counts over all instances: alike in two processes, different on two builds in one."""

    count = 0

    def alter(self, result):
        Counting.count += 1
        return result._replace(observation=f"{result.observation} The clock says {self.count}.")


class ClosesOnce(Corridor):
    closed = False

    def close(self):
        if self.closed:
            raise OSError("already closed")
        self.closed = True


class Nameless(Corridor):
    name = ""


class Boasting(Altered):
    def alter(self, result):
        return result._replace(info={**result.info, "changed": True, "refused": True})


class Vague(Altered):
    def alter(self, result):
        return result._replace(info={**result.info, "changed": None})


BROKEN = [
    (Nameless, "identity", "name is ''"),
    (Careless, "splits", "did not raise ConfigError"),
    (Overlapping, "splits", "'train-3' is in split 'train' and again in 'test'"),
    (Trusting, "unknown task", "did not raise EnvError"),
    (Blank, "reset", "blank"),
    (Bare, "steps", "step returned tuple, not StepResult"),
    (Unsure, "steps", "reward is nan; unknown is None"),
    (Numb, "steps", "not both of type bool"),
    (Inventive, "steps", "terminal is 'won'; allowed: None, success, failure, truncated"),
    (Boasting, "steps", "an action was refused, and changed the state"),
    (Vague, "steps", "changed is None and refused is False; they are of type bool"),
    (Confused, "steps", "terminal is 'truncated' while terminated=True"),
    (Marking, "steps", r"ends in a marker of the text protocol: .* \[SUCCESS\]"),
    (Unending, "after the end", "did not raise EnvError"),
    (Crashing, "odd actions", "an action that is not ASCII raised UnicodeEncodeError"),
    (Picky, "odd actions", "the empty action raised ValueError: bad action ''"),
    (Remembering, "fresh start", "after a reset in mid-episode"),
    (Counting, "fresh start", "The clock says"),
    (ClosesOnce, "close", "raised OSError: already closed"),
]


def named(cls: type[Environment]) -> EnvSpec:
    return EnvSpec(f"{cls.__module__}:{cls.__name__}")


def test_a_correct_environment_passes_in_separate_processes():
    report = check_env(named(Corridor))
    assert report.ok
    assert report.rules == ALL_RULES
    assert report.task_ids == ("train-0", "test-0")
    assert report.notes == ["determinism: tried in 2 more processes with different PYTHONHASHSEED"]
    assert 0 < report.reset_seconds < 1
    assert report.steps_per_second > 10


@pytest.mark.parametrize(("cls", "rule", "what"), BROKEN, ids=[cls.__name__ for cls, _, _ in BROKEN])
def test_each_breach_is_caught_by_its_rule(cls: type[Environment], rule: str, what: str):
    with pytest.raises(EnvError, match=f"{rule}: .*{what}") as caught:
        check_env(cls, ["train-0", "train-1", "test-0"], max_steps=40)
    assert f"BROKEN {rule}\n" in str(caught.value)


def test_what_depends_on_hash_order_shows_only_in_separate_processes():
    assert check_env(HashOrdered).ok
    report = check_env(named(HashOrdered), raise_on_problem=False)
    assert {problem.rule for problem in report.problems} == {"determinism"}
    assert "step 1" in report.problems[0].what
    assert "PYTHONHASHSEED=1" in report.problems[0].what


def test_an_instance_is_left_open_and_the_report_says_how_it_was_tried():
    env = ClosesOnce()
    report = check_env(env)
    assert not env.closed
    assert "close" not in report.rules
    assert "one environment in one process" in report.notes[-1]


def test_where_nothing_ends_the_report_says_that_the_end_was_not_tried():
    class Planless(Corridor):
        def reset(self, task_id: str, seed: int = 0) -> Observation:
            return super().reset(task_id, seed)._replace(gold_actions=None)

    report = check_env(Planless, ["train-0"], max_steps=1)
    assert report.ok
    assert any("did not end when played" in note for note in report.notes)


def test_actions_are_drawn_from_what_is_admissible_and_otherwise_from_the_list():
    class Silent(Altered):
        seen: list[str] = []  # noqa: RUF012

        def step(self, action):
            self.seen.append(action)
            return super().step(action)

        def alter(self, result):
            return result._replace(info={"terminal": result.info["terminal"]})

    check_env(Silent, ["train-0"], actions=["go east"])
    assert {"go east", "take key", "unlock door"} <= set(Silent.seen)  # the last two by the plan
    assert "go west" not in Silent.seen


def test_a_report_reads_as_text():
    report = check_env(Nameless, raise_on_problem=False, task_ids=["train-0"])
    assert report.problems == [Problem("identity", None, "name is '', not a text")]
    lines = str(report).splitlines()
    assert lines[0] == " 1: 1 problem(s)"
    assert "  BROKEN identity" in lines
    assert "  ok     splits" in lines
    assert "  - identity: name is '', not a text" in lines
    assert lines[-1].endswith("steps/s")


def test_an_environment_that_cannot_be_built_says_so_itself():
    with pytest.raises(ConfigError, match="no 'Nowhere'"):
        check_env(EnvSpec("tests.envs.corridor:Nowhere"))
