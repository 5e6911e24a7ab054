"""Whether the environment is named, and that everybody who loads a model names it alike."""

from pathlib import Path

import pytest

from tests.envs.corridor import Corridor, Walker
from worldloom.envs.base import Observation
from worldloom.errors import ConfigError, ModelError
from worldloom.lm.server import ServerLM
from worldloom.lm.session import LocalLM
from worldloom.naming import Naming
from worldloom.protocol import render, system_text
from worldloom.rollout import rollout
from worldloom.trajectory import Trajectory
from worldloom.world import Start, WorldModelEnv, starts_of

TWO = Naming(True, ("corridor", "shaft"))


@pytest.fixture(scope="module")
def episode() -> Trajectory:
    return rollout(Corridor(), Walker(), "train-3", split="train", max_steps=3)


@pytest.fixture(scope="module")
def named(tiny_lm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model, said to have learnt two environments."""
    folder = tmp_path_factory.mktemp("named")
    for file in tiny_lm_folder.iterdir():
        (folder / file.name).symlink_to(file)
    TWO.save(folder)
    return folder


def test_the_first_line_names_the_environment(episode: Trajectory) -> None:
    assert system_text("A context.", "A room.", "shaft") == "Environment: shaft\nA context.\n\nA room."
    assert system_text(None, "A room.", "shaft") == "Environment: shaft\nA room."
    plain, named = render(episode), render(episode, "shaft")
    assert named[0]["content"] == "Environment: shaft\n" + plain[0]["content"]
    assert named[1:] == plain[1:]


def test_who_is_named() -> None:
    assert Naming().of("corridor") is Naming().of(None) is None
    assert (TWO.of("corridor"), TWO.of("world-model:shaft"), TWO.of("elsewhere")) == ("corridor", "shaft", "elsewhere")
    assert Naming(True, ("corridor",)).of(None) == "corridor"  # there is only one that it can be
    for nothing in (None, "unknown"):
        with pytest.raises(ConfigError, match=r"say which \(it learnt corridor, shaft\)"):
            TWO.of(nothing)


def test_several_environments_are_named_and_one_is_not_unless_so_told() -> None:
    assert Naming().learning(["a"]) == Naming(False, ("a",))
    assert Naming().learning(["b", "a"]) == Naming(True, ("a", "b"))
    assert Naming().learning(["a", "world-model:a"]) == Naming(False, ("a",))
    assert Naming().learning(["a"], named=True) == Naming(True, ("a",))
    assert Naming().learning(["a", "b"], named=False) == Naming(False, ("a", "b"))
    assert Naming(True, ("a", "b")).learning(["c"]) == Naming(True, ("a", "b", "c"))  # as it was trained before
    assert Naming(False, ("a",)).learning(["b"]) == Naming(False, ("a", "b"))


def test_it_is_kept_beside_the_model(tmp_path: Path) -> None:
    assert Naming.load(tmp_path) == Naming()  # Word2World's checkpoints, and all that were made elsewhere
    TWO.save(tmp_path)
    assert Naming.load(tmp_path) == TWO
    for text in ("{", "[]", '{"names_environment": true}'):
        (tmp_path / "protocol.json").write_text(text)
        with pytest.raises(ModelError, match=r"protocol\.json is broken .*; copy it from the model's training run"):
            Naming.load(tmp_path)


def test_a_session_begins_as_the_episode_was_learnt(named: Path, tiny_lm_folder: Path, episode: Trajectory) -> None:
    for folder, line in ((named, "Environment: corridor\n"), (tiny_lm_folder, "")):
        lm = LocalLM(str(folder))
        learnt = lm.chat.encode(episode, 512)
        world = WorldModelEnv(lm, starts_of([episode]), "tests.envs.corridor:Corridor", max_new_tokens=2)
        world.reset("train-3")
        begun = world._session.ids + lm.chat.action(episode.steps[0].action)
        assert learnt.input_ids[: learnt.spans[0].start] == begun
        content = lm.chat.tokenizer.decode(begun[len(lm.chat.head) :])
        assert content.startswith(line + episode.initial_context)
        world.step("look")
        assert world.fork()._session.ids == world._session.ids


def test_a_world_without_a_name_is_told_to_give_one(named: Path) -> None:
    lm, start = LocalLM(str(named)), {"t": Start("all", Observation("A room."))}
    with pytest.raises(ConfigError, match=r"say which \(it learnt corridor, shaft\)"):
        WorldModelEnv(lm, start).reset("t")
    world = WorldModelEnv(lm, start, "shaft")
    world.reset("t")
    assert "Environment: shaft\nA room." in lm.chat.tokenizer.decode(world._session.ids)


def test_a_served_model_is_asked_in_the_same_words(named: Path, episode: Trajectory) -> None:
    served = ServerLM(base_url="http://127.0.0.1:9/v1", model=str(named))
    text = "Environment: corridor\n" + system_text(episode.initial_context, episode.initial_observation)
    session = served.session(episode.initial_context, episode.initial_observation, "corridor")
    assert session.messages == [{"role": "system", "content": text}]
    asked = []
    served.reply = lambda messages, *rest: asked.append(list(messages)) or "x"
    list(served.answers(episode))
    assert asked[1] == render(episode, "corridor")[:4]
    other = ServerLM(base_url="http://127.0.0.1:9/v1", model="somebody/else")
    assert other.session(None, "A room.", "corridor").messages[0]["content"] == "A room."
    told = ServerLM(base_url="http://127.0.0.1:9/v1", model="alias", naming=TWO)
    assert told.session(None, "A room.", "shaft").messages[0]["content"] == "Environment: shaft\nA room."
