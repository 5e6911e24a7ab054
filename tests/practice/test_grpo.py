"""GRPO through TRL's trainer: that it learns from reward alone, what it is given, and that the guard ends it."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.practice.conftest import settings
from tests.practice.doors import Doors
from worldloom.agents.gold import Replay
from worldloom.agents.policy import PolicyAgent
from worldloom.envs import EnvSpec
from worldloom.envs.check import check_env
from worldloom.errors import ConfigError
from worldloom.lm.session import LocalLM
from worldloom.practice.grpo import GrpoConfig, grpo
from worldloom.practice.grpo_rollouts import Rollouts, reward, rewards
from worldloom.practice.guard import Guard, GuardConfig, Verdict
from worldloom.practice.place import Place
from worldloom.rollout import broken, rollout
from worldloom.runs import read_json, read_records
from worldloom.train import train
from worldloom.trajectory import AgentRef, EnvRef, Failure, Step, TaskRef, Trajectory, read, write

DOORS = EnvSpec("tests.practice.doors:Doors")
CORRIDOR = EnvSpec("tests.envs.corridor:Corridor", {"longest": 3})
SMALL = GrpoConfig(updates=2, tasks=2, tasks_per_update=2, samples=2, max_steps=4, save_every=1)


@pytest.fixture(scope="module")
def undecided(tiny_lm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that has seen either door opened as often as the other."""
    out = tmp_path_factory.mktemp("undecided")
    episodes = [
        rollout(Doors(), Replay([f"open {door}"]), f"train-{n}", split="train", max_steps=1)
        for n in range(8) for door in ("left", "right")
    ]  # fmt: skip
    write(out / "both.jsonl", episodes)
    learnt = settings(
        tiny_lm_folder, learns="policy", steps=40, batch=16, micro_batch=16, learning_rate=5e-3
    )  # fmt: skip
    train([out / "both.jsonl"], out / "run", learnt)
    return out / "run"


def chance(model: Path, draws: int = 96) -> float:
    """How often a policy opens the right door."""
    lm = LocalLM(str(model), torch.float32, learns="policy")
    played = [rollout(Doors(), PolicyAgent.of(lm, 1.0, n), f"train-{n % 8}") for n in range(draws)]
    return sum(t.outcome == "success" for t in played) / draws


def test_doors_keep_the_contract() -> None:
    check_env(DOORS)


def test_reward_alone_teaches_the_right_door(undecided: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From about one half to nearly always, within a dozen updates of TRL's own algorithm."""
    pytest.importorskip("trl")
    monkeypatch.chdir(undecided.parent)  # draws depend on the policy's name: the same one each time
    config = GrpoConfig(
        updates=12,
        tasks=8,
        tasks_per_update=2,
        samples=8,
        learning_rate=4e-3,
        max_steps=1,
        micro_batch=16,
        save_every=6,
    )
    before = chance(undecided)
    assert 0.1 <= before <= 0.8
    told = grpo(tmp_path, Place(DOORS), undecided.name, config=config)
    assert chance(tmp_path) >= before + 0.15
    assert (told["updates"], told["learns"], told["method"]) == (12, "policy", "grpo")
    assert (told["real_steps"], told["imagined_steps"]) == (12 * 16, 0)
    assert [one["learns"] for one in told["before"]] == ["policy"]
    played = read(tmp_path / "rollouts.jsonl")
    assert len(played) == 12 * 16
    curve = [one["reward"]["value"] for one in read_records(tmp_path / "updates.jsonl")]
    assert curve[0] == sum(t.outcome == "success" for t in played[:16]) / 16 == told["reward"]["first"]["value"]
    assert sum(curve[-4:]) > sum(curve[:4])
    assert (tmp_path / "reward.svg").exists()
    before_bytes = (tmp_path / "rollouts.jsonl").stat().st_size
    assert grpo(tmp_path, Place(DOORS), undecided.name, config=config) == told  # a finished run is left alone
    assert (tmp_path / "rollouts.jsonl").stat().st_size == before_bytes


@pytest.fixture
def interrupted(undecided: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A run of these settings that was stopped after its first update."""
    pytest.importorskip("trl")
    play = Rollouts.__call__

    def stopping(self: Rollouts, tasks: Any, trainer: Any) -> Any:
        if trainer.state.global_step == 1:
            raise KeyboardInterrupt
        return play(self, tasks, trainer)

    def run(**settings: Any) -> Path:
        with monkeypatch.context() as patch:
            patch.setattr(Rollouts, "__call__", stopping)
            with pytest.raises(KeyboardInterrupt):
                grpo(tmp_path, Place(DOORS), str(undecided), **settings)
        assert not (tmp_path / "train.json").exists()
        return tmp_path

    return run


SHORT = GrpoConfig(updates=2, tasks=2, tasks_per_update=2, samples=2, max_steps=1, save_every=1)


def test_stopped_between_updates_it_goes_on(undecided: Path, interrupted: Callable[..., Path]) -> None:
    out = interrupted(config=SHORT)
    assert grpo(out, Place(DOORS), str(undecided), config=SHORT)["updates"] == 2
    assert [one["at"] for one in read_records(out / "updates.jsonl")] == [1, 2]  # the first was not played again
    assert len(read(out / "rollouts.jsonl")) == 8
    with pytest.raises(ConfigError, match="other settings"):
        grpo(out, Place(DOORS), str(undecided), config=SMALL)


def test_what_was_played_before_a_stop_is_looked_at_after_it(
    undecided: Path, interrupted: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: dict[int, list[list[Step]]] = {}

    class Seeing(Guard):
        def check(self, at: int, episodes: Sequence[Trajectory]) -> Verdict:
            looked[at] = [t.steps for t in episodes]
            return "fine"

    made: Any = lambda out, place, config: Seeing(out, DOORS, config)  # noqa: E731
    monkeypatch.setattr("worldloom.practice.grpo.guard_of", made)
    settings = {"config": SHORT, "guard": GuardConfig(every=2)}
    out = interrupted(**settings)
    grpo(out, Place(DOORS), str(undecided), **settings)
    assert looked == {2: [t.steps for t in read(out / "rollouts.jsonl")]} and len(looked[2]) == 8


def test_only_what_the_policy_said_is_reinforced(policy: Path, tmp_path: Path) -> None:
    """TRL gets whole episodes; its mask covers the actions and nothing that the environment said."""
    from worldloom.practice.grpo_rollouts import _tokens

    lm = LocalLM(str(policy), torch.float32, learns="policy")
    agent = PolicyAgent.of(lm)
    with_two = rollout(CORRIDOR.build(), agent, "train-0", max_steps=2)
    prompt, completion, mask = _tokens(agent, lm)
    text = lm.chat.tokenizer.decode(prompt)
    assert text.endswith(with_two.initial_observation) and "Get into room" in text
    said = lm.chat.tokenizer.decode([token for token, own in zip(completion, mask, strict=True) if own])
    assert said == "".join(f"{action}<|im_end|>" for action in with_two.actions)
    assert len(completion) == len(mask)
    assert _tokens(PolicyAgent.of(lm), lm) == ([lm.chat.end], [lm.chat.end], [0])  # it broke before it began


def test_rewards() -> None:
    won = rollout(Doors(), Replay(["open right"]), "train-0")
    lost = rollout(Doors(), Replay(["open left"]), "train-0")
    failed = broken(EnvRef(name="doors"), TaskRef(id="t"), AgentRef(name="a"), Failure(kind="EnvError", message="gone"))
    assert [reward(t) for t in (won, lost, failed)] == [1.0, 0.0, None]
    assert rewards(outcome_reward=[1.0, None], prompts=["a", "b"]) == [1.0, None]


def test_the_guard_ends_training_in_a_broken_world(policy: Path, liar: Path, tmp_path: Path) -> None:
    pytest.importorskip("trl")
    place = Place(CORRIDOR, str(liar))
    told = grpo(tmp_path, place, str(policy), config=SMALL, guard=GuardConfig(every=1, sample=8, limit=0.3))
    assert (told["updates"], told["updates_played"]) == (0, 1)
    kept, first = (folder / "model" / "model.safetensors" for folder in (tmp_path, policy))
    assert kept.read_bytes() == first.read_bytes()  # the policy is what it was
    assert read_json(policy / "train.json") == read_json(policy / "model" / "train.json")  # and its own record, too
    assert read_json(tmp_path / "model" / "train.json") == told
    assert "false in the real environment" in told["stopped"]
    assert told["reward"]["last"]["value"] == 1.0
    assert (told["real_steps"], told["imagined_steps"]) == (0, 4)
    assert read_json(tmp_path / "guard.json")[0]["false_success"]["value"] == 1.0
    assert all(t.imagined for t in read(tmp_path / "rollouts.jsonl"))


class Scripted(Guard):
    """Says fine, and stop at the second look."""

    def check(self, at: int, episodes: Any) -> Verdict:
        self.checks.append({"at": at, "verdict": "stop" if at == 2 else "fine"})
        return "stop" if at == 2 else "fine"


def test_stopped_later_the_weights_of_the_look_before_are_kept(
    undecided: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("trl")
    guard = Scripted(tmp_path, DOORS, GuardConfig(every=1))
    monkeypatch.setattr("worldloom.practice.grpo.guard_of", lambda *about: guard)
    config = GrpoConfig(updates=3, tasks=2, tasks_per_update=2, samples=8, max_steps=1, save_every=1,
                        learning_rate=4e-3)  # fmt: skip
    told = grpo(tmp_path, Place(DOORS), str(undecided), config=config)
    assert (told["updates"], told["updates_played"]) == (1, 2)
    assert "update 2" in told["stopped"]
    weights = {name: load_file(folder / "model.safetensors") for name, folder in {
        "kept": tmp_path / "model", "first": tmp_path / "checkpoints" / "checkpoint-1", "before": undecided / "model",
    }.items()}  # fmt: skip
    same = [torch.equal(weights["kept"][name], weights["first"][name]) for name in weights["kept"]]
    changed = [not torch.equal(weights["kept"][name], weights["before"][name]) for name in weights["kept"]]
    assert all(same) and any(changed)
    LocalLM(str(tmp_path), learns="policy")
    assert not (tmp_path / "passed").exists()


def test_without_trl_it_says_what_to_install(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trl", None)
    with pytest.raises(ConfigError, match=r"pip install 'worldloom\[rl\]'"):
        grpo(tmp_path / "out", Place(DOORS), str(policy))
    assert not (tmp_path / "out").exists()


def test_settings_out_of_range_are_refused() -> None:
    for wrong in ({"samples": 1}, {"tasks": 2}, {"updates": 0}, {"micro_batch": 3}):
        with pytest.raises(ConfigError):
            GrpoConfig(**wrong)  # type: ignore[arg-type]
