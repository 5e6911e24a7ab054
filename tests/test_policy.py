"""A model that learns to act: what it is told, what it learns, that it acts, and that it is no world."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.envs.corridor import Corridor, Walker
from worldloom.agents import AgentSpec
from worldloom.agents.base import Decision, Start
from worldloom.agents.gold import GoldFollower
from worldloom.agents.policy import PolicyAgent, decision, shared
from worldloom.collect import collect
from worldloom.config import TrainConfig
from worldloom.envs import EnvSpec
from worldloom.errors import ConfigError, ModelError
from worldloom.lm.base import open_lm
from worldloom.lm.hf import load_model, load_tokenizer
from worldloom.lm.session import LocalLM
from worldloom.naming import Naming
from worldloom.role import Role, policy_system
from worldloom.rollout import rollout
from worldloom.runs import read_json
from worldloom.tokens import ChatFormat
from worldloom.train import train
from worldloom.trajectory import EnvRef, Step, TaskRef, Trajectory, read, write

EPISODE = Trajectory(
    env=EnvRef(name="corridor"),
    task=TaskRef(id="t", instruction="Get out."),
    initial_context="The key is in room 2.",
    initial_observation="A room.",
    steps=[
        Step(action="go east", observation="Another room.", thought="East is good."),
        Step(action="take key", observation="You win.", terminal="success"),
    ],
)
SEEN = """\
<|im_start|>system
Get out.<|im_end|>
<|im_start|>user
A room.<|im_end|>
<|im_start|>assistant
go east<|im_end|>
<|im_start|>user
Another room.<|im_end|>
<|im_start|>assistant
take key<|im_end|>"""


@pytest.fixture(scope="module")
def chat(tiny_lm_folder: Path) -> ChatFormat:
    return ChatFormat(load_tokenizer(tiny_lm_folder), role=Role("policy"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One task that is won, many times over, and one that is not."""
    path = tmp_path_factory.mktemp("data") / "trajectories.jsonl"
    won = [rollout(Corridor(), GoldFollower(), "train-0", seed=0, split="train") for _ in range(4)]
    lost = rollout(Corridor(), GoldFollower(0.9), "train-1", split="train", max_steps=3)
    write(path, [*won, lost])
    return path


@pytest.fixture(scope="module")
def config(tiny_lm_folder: Path) -> TrainConfig:
    return TrainConfig(
        model=str(tiny_lm_folder), learns="policy", keep="success", steps=60, epochs=100, learning_rate=1e-2,
        warmup_steps=2, schedule="constant", precision="float32",
    )  # fmt: skip


@pytest.fixture(scope="module")
def policy(data: Path, config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("policy")
    train([data], out, config)
    return out


def text(chat: ChatFormat, ids: list[int]) -> str:
    return str(chat.tokenizer.decode(ids))


def test_an_agent_is_not_told_the_initial_context_and_learns_actions_only(chat: ChatFormat) -> None:
    encoded = chat.encode(EPISODE, 1000)
    assert text(chat, encoded.input_ids) == SEEN
    learnt = [text(chat, encoded.input_ids[start:stop]) for start, stop, _ in encoded.spans]
    assert learnt == ["go east<|im_end|>", "take key<|im_end|>"]
    assert [span.step for span in encoded.spans] == [0, 1]


def test_react_is_thought_and_action(chat: ChatFormat) -> None:
    role = Role("policy", "react")
    assert [role.answer(step) for step in EPISODE.steps] == [
        "Thought: East is good.\nAction: go east",
        "Action: take key",
    ]
    assert decision("Thought: East is good.\nAction: go east", role) == Decision("go east", "East is good.")
    assert decision("Thought: hm", Role("policy")) == Decision("Thought: hm")
    encoded = ChatFormat(chat.tokenizer, role=role).encode(EPISODE, 1000)
    start, stop, _ = encoded.spans[0]
    assert text(chat, encoded.input_ids[start:stop]) == "Thought: East is good.\nAction: go east<|im_end|>"


def test_the_system_message_says_the_task_once() -> None:
    assert policy_system("Get out.", "A room.") == "Get out."
    assert policy_system("Get out.", "A room. Get out.") == policy_system(None, "A room.") == ""
    assert policy_system("Get out.", "A room.", "corridor") == "Environment: corridor\nGet out."


def test_what_does_not_fit_is_left_out_from_the_end(chat: ChatFormat) -> None:
    whole = chat.encode(EPISODE, 1000)
    cut = chat.encode(EPISODE, len(whole.input_ids) - 1)
    assert (len(cut.spans), cut.left_out) == (1, 1)
    assert whole.input_ids[: len(cut.input_ids)] == cut.input_ids


def test_a_session_reads_what_training_read(chat: ChatFormat, tiny_lm_folder: Path) -> None:
    lm = LocalLM(str(tiny_lm_folder), torch.float32, learns="policy")
    session = lm.policy("Get out.", "A room.")
    session.hear("A room.", "go east")
    session.hear("Another room.", "take key")
    encoded = chat.encode(EPISODE, 1000)
    assert session.ids == encoded.input_ids
    mask = [0] * session.start + session.spoken()
    assert [n for n, said in enumerate(mask) if said] == [n for s in encoded.spans for n in range(s.start, s.stop)]
    session.rewind()
    assert session.ids == encoded.input_ids[: encoded.spans[0].stop]
    twin = session.fork()
    assert twin.spoken() == session.spoken()


def test_a_policy_does_what_it_learnt(policy: Path, data: Path) -> None:
    gold = read(data)[0].actions
    agent = PolicyAgent(str(policy))
    played = rollout(Corridor(), agent, "train-0", split="train", max_steps=10)
    assert played.outcome == "success"
    assert played.actions == gold
    assert played.agent is not None
    assert played.agent.params == {"model": str(policy), "temperature": 0.0, "max_new_tokens": None, "env": None,
                                   "sample": 0}  # fmt: skip


def test_drafts_do_not_change_what_is_said(policy: Path) -> None:
    plain, drafting = (LocalLM(str(policy), torch.float32, learns="policy", draft=draft) for draft in (False, True))
    first, second = (rollout(Corridor(), PolicyAgent.of(lm), "train-3", max_steps=6) for lm in (plain, drafting))
    assert first.actions == second.actions
    assert drafting.engine.counts.passes < plain.engine.counts.passes


def test_draws_differ_by_sample_and_repeat_by_seed(policy: Path) -> None:
    def draw(sample: int) -> list[str]:
        agent = PolicyAgent(str(policy), temperature=3.0, sample=sample, max_new_tokens=8)
        return rollout(Corridor(), agent, "train-0", max_steps=3).actions

    assert draw(0) == draw(0)
    assert draw(0) != draw(1)


def test_one_copy_of_a_model_serves_all_agents(policy: Path) -> None:
    assert shared(str(policy)) is shared(str(policy))


def test_collecting_with_a_policy_keeps_it_in_this_process(policy: Path, tmp_path: Path) -> None:
    env = EnvSpec("tests.envs.corridor:Corridor")
    agents = [AgentSpec("policy", {"model": str(policy)}), AgentSpec("tests.envs.corridor:Walker")]
    summary = collect(tmp_path, env, agents, "train", tasks=3, agents_per_task=2, max_steps=8)
    assert summary["episodes"] == 6
    assert "error" not in summary["outcomes"]
    assert sorted(summary["by_agent"]) == sorted([f"policy(model={policy})", "walker"])
    again = collect(tmp_path, env, agents, "train", tasks=3, agents_per_task=2, max_steps=8)
    assert again == summary


def test_a_policy_that_is_trained_on_is_another_agent(policy: Path, tmp_path: Path) -> None:
    """Its name stays the same, so what was collected with it before must not be mixed with what comes now."""
    mine, env = shutil.copytree(policy, tmp_path / "mine"), EnvSpec("tests.envs.corridor:Corridor")
    agents = [AgentSpec("policy", {"model": str(mine)})]
    collect(tmp_path / "out", env, agents, "train", tasks=2, max_steps=4)
    weights = next((mine / "model").glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    with pytest.raises(ConfigError, match=r"holds a run with other settings \(weights: "):
        collect(tmp_path / "out", env, agents, "train", tasks=2, max_steps=4)


def test_files_say_what_a_model_is(policy: Path, data: Path) -> None:
    metrics, protocol = read_json(policy / "train.json"), read_json(policy / "model" / "protocol.json")
    assert (metrics["learns"], metrics["says"]) == (protocol["learns"], protocol["says"]) == ("policy", "actions")
    assert metrics["trajectories"] == 4  # the lost one is not learnt from
    assert Naming.load(policy / "model") == Naming(False, ("corridor",))


def test_a_policy_is_no_world_and_a_world_no_policy(
    policy: Path, data: Path, config: TrainConfig, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match="is a policy, not a world model"):
        open_lm(str(policy))
    world = tmp_path / "world"
    train([data], world, replace(config, learns="world", steps=1))
    with pytest.raises(ModelError, match="is a world model, not a policy"):
        shared(str(world))
    broken = rollout(Corridor(), PolicyAgent(str(world)), "train-0")
    assert broken.error is not None and "not a policy" in broken.error.message
    with pytest.raises(ConfigError, match="is a world model; to make it a policy, say change_role=true"):
        train([data], tmp_path / "refused", replace(config, model=str(world), steps=1))
    assert not (tmp_path / "refused").exists()
    metrics = train([data], tmp_path / "early", replace(config, model=str(world), steps=1, change_role=True))
    assert [before["learns"] for before in metrics["before"]] == ["world"]
    assert metrics["learns"] == "policy"
    shared(str(tmp_path / "early"))


def test_models_from_before_there_were_policies_are_worlds(tmp_path: Path) -> None:
    assert Role.load(tmp_path) is None
    (tmp_path / "replies.json").write_text("{}")
    assert Role.load(tmp_path) == Role("world")
    (tmp_path / "protocol.json").write_text(json.dumps({"names_environment": False, "environments": []}))
    assert Role.load(tmp_path) == Role("world")
    (tmp_path / "protocol.json").write_text(json.dumps({"learns": "dance"}))
    with pytest.raises(ModelError, match=r"is broken .*learns 'dance'"):
        Role.load(tmp_path)


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="says=react is how a policy speaks"):
        TrainConfig(says="react")
    with pytest.raises(ConfigError, match="use cut or drop"):
        TrainConfig(learns="policy", overflow="window")
    with pytest.raises(ConfigError, match=r"imagined is 1.5; it is a share from 0 to 1"):
        TrainConfig(imagined=1.5)
    assert "learns" not in TrainConfig().recorded()
    assert TrainConfig(learns="policy").recorded()["learns"] == "policy"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])  # the latter laid out for oneDNN, if that can be
def test_new_weights_are_taken_over(policy: Path, tiny_lm_folder: Path, dtype: torch.dtype) -> None:
    lm = LocalLM(str(tiny_lm_folder), dtype, learns="policy")
    trained = LocalLM(str(policy), dtype, learns="policy")
    start = Start("train-0", Corridor().reset("train-0").text, "Get into room 3.", 0)

    def first(model: LocalLM) -> str:
        agent = PolicyAgent.of(model)
        agent.begin(start)
        return agent.act(start.text).action

    assert first(lm) != first(trained)
    lm.take(load_model(str(policy)).state_dict())
    assert first(lm) == first(trained)


def test_walkers_are_policies_of_another_kind() -> None:
    assert not Walker.together and PolicyAgent.together


def test_a_policy_can_be_forked_and_told_what_was_done_in_its_name(policy: Path) -> None:
    gold = PolicyAgent(str(policy))
    first = Corridor().reset("train-0")
    gold.begin(Start("train-0", first.text, first.instruction, 0))
    twin = gold.fork()
    said = gold.act(first.text).action
    assert twin.act(first.text).action == said
    assert twin.lm is gold.lm
    twin.did("look")
    twin.act("There is nothing here.")
    assert twin.session is not None and isinstance(twin.lm, LocalLM)
    assert "<|im_start|>assistant\nlook<|im_end|>" in twin.lm.chat.tokenizer.decode(twin.session.ids)  # type: ignore[attr-defined]
