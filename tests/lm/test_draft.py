"""Guesses at replies, worked out by hand from a few logged ones."""

from pathlib import Path

import pytest

from worldloom.errors import ModelError
from worldloom.lm.draft import ALTERNATIVES, PIECES, Drafter, Memory
from worldloom.lm.replies import END, LONGEST, RARE, Action, Replies, pieces
from worldloom.trajectory import Trajectory

NOTHING = "Nothing happens."


def logged(*pairs: tuple[str, str], times: int = RARE) -> Replies:
    steps = [{"action": action, "observation": reply} for action, reply in pairs] * times
    episode = {"env": {"name": "e"}, "task": {"id": "t"}, "initial_observation": "A room.", "steps": steps}
    return Replies().learn([Trajectory.model_validate(episode)])


def remembered(*texts: str) -> Memory:
    memory = Memory()
    for text in texts:
        memory.hear(text)
    return memory


def guesses(replies: Replies, memory: Memory, action: str, said: str = "") -> list[str]:
    return ["".join(guess) for guess in Drafter(replies, memory, action).guesses(said)]


@pytest.mark.parametrize(
    "text", ["On the shelf 1, you see a book 2.", "a\n\n b  c_d\t", "", " ", "é—ü 'x'", '{"a": [1]}']
)
def test_pieces_make_up_their_text(text: str) -> None:
    assert "".join(pieces(text)) == text


def test_a_reply_repeats_the_words_of_its_action() -> None:
    replies = logged(("take mug 1 from desk 2", "You pick up the mug 1 from the desk 2."))
    assert guesses(replies, Memory(), "take pen 7 from shelf 12") == [f"You pick up the pen 7 from the shelf 12.{END}"]
    # Another form of action is not known.
    assert guesses(replies, Memory(), "take pen 7") == []


def test_a_number_is_repeated_only_behind_its_word() -> None:
    action = Action("go to desk 1")
    assert [action.open(part)[0] for part in pieces("a pen 1")] == ["a", " pen", " 1"]
    opened, last = [], -1
    for part in pieces("the desk 1"):
        name, last = action.open(part, last)
        opened.append(name)
    assert opened == ["the", " \x002", " \x003"]
    assert "".join(action.fill(name) for name in opened) == "the desk 1"


def test_what_is_usual_comes_first_and_alternatives_after_it() -> None:
    often, seldom = ("use lamp 1", "You turn on the lamp 1."), ("use mug 1", NOTHING)
    replies = logged(often, often, seldom)
    assert guesses(replies, Memory(), "use lamp 9") == [f"You turn on the lamp 9.{END}", f"{NOTHING}{END}"]
    # The answer has begun: it can go on in one way only.
    assert guesses(replies, Memory(), "use lamp 9", "Nothing") == [f" happens.{END}"]
    many = logged(*((f"use a {n}", f"{word} it.") for n, word in enumerate(["Ah", "Be", "Ce", "De", "Eh"])))
    assert len(guesses(many, Memory(), "use a 1")) == 1 + ALTERNATIVES


def test_what_this_episode_said_of_the_thing_decides_between_usual_replies() -> None:
    replies = logged(
        ("go to desk 1", "You arrive at desk 1. On the desk 1, you see a pen 1."),
        ("go to sofa 1", "You arrive at sofa 1. On the sofa 1, you see nothing."),
        ("go to safe 2", "You arrive at safe 2. The safe 2 is closed."),
        ("go to safe 3", "You arrive at safe 3. The safe 3 is open. In it, you see a ring 1."),
    )
    memory = remembered("The safe 4 is closed. In it, you see a coin 2.", "On the bed 1, you see nothing.")
    assert guesses(replies, memory, "go to bed 1")[0] == f"You arrive at bed 1. On the bed 1, you see nothing.{END}"
    assert guesses(replies, memory, "go to safe 4")[0].startswith("You arrive at safe 4. The safe 4 is closed.")
    memory.hear("You open the safe 4. The safe 4 is open. In it, you see a coin 2.")
    arrived = "You arrive at safe 4. The safe 4 is open. In it, you see a coin 2."
    assert guesses(replies, memory, "go to safe 4")[0] == arrived + END


def test_contents_are_those_of_the_thing_itself_not_of_the_last_thing() -> None:
    opened = "You open the safe 1. The safe 1 is open. In it, you see"
    replies = logged(("open safe 1", f"{opened} a ring 1."), ("open safe 1", f"{opened} nothing."))
    memory = remembered(
        "The safe 1 is closed. In it, you see a coin 2, and a coin 1.", "The safe 2 is closed. In it, you see nothing."
    )
    assert guesses(replies, memory, "open safe 1", opened) == [f" a coin 2, and a coin 1.{END}"]


def test_an_episode_alone_is_enough_to_go_on_once_the_reply_has_begun() -> None:
    memory = remembered("On the shelf 1, you see a book 2, and a pen 1.")
    assert guesses(Replies(), memory, "go to shelf 1") == []
    assert guesses(Replies(), memory, "go to shelf 1", "On the shelf 1, you") == [f" see a book 2, and a pen 1.{END}"]


def test_a_guess_that_runs_in_circles_ends() -> None:
    memory = remembered("la la la la la la la la")
    [guess] = Drafter(Replies(), memory, "sing").guesses("la la la")
    assert len(guess) <= PIECES


def test_what_is_forgotten_is_not_repeated() -> None:
    memory = remembered("The door is red now.")
    before = len(memory.parts)
    memory.hear("The door is green now.")
    twin = memory.copy()
    assert guesses(Replies(), memory, "look", "The door is") == [f" green now.{END}"]
    memory.forget(before)
    assert guesses(Replies(), memory, "look", "The door is") == [f" red now.{END}"]
    assert guesses(Replies(), twin, "look", "The door is") == [f" green now.{END}"]


def test_a_reply_that_cannot_be_said_is_passed_over() -> None:
    assert logged(("win", "You win. [SUCCESS]")).forms == {}


def test_replies_are_kept_in_the_models_folder(tmp_path: Path) -> None:
    replies = logged(("look", "A room."), times=1)
    replies.save(tmp_path)
    assert Replies.load(tmp_path).forms == replies.forms
    assert Replies.load(tmp_path / "nowhere").forms == {}
    (tmp_path / "replies.json").write_text("{")
    with pytest.raises(ModelError, match=r"replies.json is broken .*; remove it, answers will only be slower"):
        Replies.load(tmp_path)


def test_of_too_many_replies_the_rarest_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {"A red.": 1, "A blue.": 2, "A green.": RARE}
    replies = logged(*(("look", text) for text, times in seen.items() for _ in range(times)), times=1)
    branches = {10: {" red", " blue", " green"}, 9: {" blue", " green"}, 6: {" green"}, 0: {" green"}}
    for most, kept in branches.items():  # "A", and three pieces of each reply: its colour, its full stop, its end
        monkeypatch.setattr("worldloom.lm.replies.MOST", most)
        replies.save(tmp_path)
        assert set(Replies.load(tmp_path).forms["look 1"]["A"][1]) == kept


def test_of_a_very_long_reply_the_beginning_is_learnt_and_the_file_can_be_read_again(tmp_path: Path) -> None:
    long = " ".join(f"word{number}" for number in range(5_000))
    replies = logged(("search all", long))
    replies.save(tmp_path)
    walk = Replies.load(tmp_path).walk(Action("search all"))
    steps = 0
    for part in pieces(long):
        if not walk.knows(part):
            break
        walk.go(part)
        steps += 1
    assert steps == LONGEST
