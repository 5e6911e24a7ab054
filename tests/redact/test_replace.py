"""The same value has the same placeholder everywhere in an episode, and the way back is exact."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from worldloom.redact.replace import Redactor, restore
from worldloom.redact.rules import Rules
from worldloom.trajectory import AgentRef, EnvRef, Failure, Step, TaskRef, Trajectory


def episode(*steps: tuple[str, str], **more: Any) -> Trajectory:
    made = [Step(action=action, observation=observation) for action, observation in steps]
    given = {"task": TaskRef(id="t"), "initial_observation": "Hi", **more}
    return Trajectory(env=EnvRef(name="e"), steps=made, **given)


def test_a_value_has_one_placeholder_in_every_place() -> None:
    told = Redactor()(
        Trajectory(
            env=EnvRef(name="e", options={"owner": "ann@example.com"}),
            task=TaskRef(id="ann@example.com/1", instruction="Write to ann@example.com."),
            initial_context="Customer: ann@example.com",
            initial_observation="ann@example.com",
            agent=AgentRef(name="a", params={"mail": ["ann@example.com"]}),
            steps=[Step(action='find("ann@example.com")', observation="1 hit: ANN@example.com",
                        thought="ann@example.com?",
                        admissible_actions=["mail ann@example.com"], raw={"ann@example.com": 1})],
            error=Failure(kind="E", message="no ann@example.com"),
            other={"deep": [{"x": "bob@example.com"}]},
        )
    )  # fmt: skip
    line = told.to_json()
    assert "ann@" not in line.lower()
    assert line.count("<EMAIL_1>") == 11
    assert told.task.id == "<REDACTED_TASK_1>"
    assert told.steps[0].observation == "1 hit: <EMAIL_1>"
    assert told.model_extra == {"other": {"deep": [{"x": "<EMAIL_2>"}]}}


def test_spellings_of_one_value_share_a_placeholder() -> None:
    told = Redactor()(
        episode(("card 4111 1111 1111 1111", "4111111111111111 ok"), ("+1 415 555 2671", "(415) 555-2671"))
    )
    assert [told.steps[0].action, told.steps[0].observation] == ["card <CARD_1>", "<CARD_1> ok"]
    assert [told.steps[1].action, told.steps[1].observation] == ["<PHONE_1>", "<PHONE_1>"]


def test_a_value_goes_where_nothing_gives_it_away_and_whole_words_stay() -> None:
    told = Redactor()(
        episode(("log in", "password: Tulip_77"), ("type Tulip_77", "x Tulip_777 is another; PIN 123 of 1234"))
    )
    assert told.steps[0].observation == "password: <PASSWORD_1>"
    assert told.steps[1].action == "type <PASSWORD_1>"
    assert told.steps[1].observation == "x Tulip_777 is another; PIN <PIN_1> of 1234"


def test_numbers_are_found_too_and_known_numbers_stay_numbers() -> None:
    step = Step(action="a", observation="b", reward=4111111111111111.0, card=4111111111111111, n=3, ratio=0.5, ok=True)
    told = Redactor()(Trajectory(env=EnvRef(name="e"), task=TaskRef(id="t", seed=4111111111111111),
                                 initial_observation="", steps=[step], account_number=123456789))  # fmt: skip
    assert told.steps[0].model_extra == {"card": "<CARD_1>", "n": 3, "ratio": 0.5, "ok": True}
    assert (told.steps[0].reward, told.task.seed) == (4111111111111111.0, 4111111111111111)
    assert told.model_extra == {"account_number": "<ACCOUNT_1>"}


def test_numbering_goes_on_after_placeholders_that_are_there() -> None:
    told = Redactor()(episode(("a", "x@example.com"), ("b", "<EMAIL_4> said so")))
    assert told.steps[0].observation == "<EMAIL_5>"


def test_each_episode_counts_anew_unless_the_scope_is_the_file() -> None:
    rows = [episode(("a", "x@example.com")), episode(("a", "y@example.com then x@example.com"))]
    anew, file = Redactor(), Redactor(Rules(scope="file"))
    assert [anew(row).steps[0].observation for row in rows] == ["<EMAIL_1>", "<EMAIL_1> then <EMAIL_2>"]
    assert [file(row).steps[0].observation for row in rows] == ["<EMAIL_1>", "<EMAIL_2> then <EMAIL_1>"]
    assert (anew.counts, anew.values) == ({"EMAIL": 3}, {"EMAIL": 3})
    assert (file.counts, file.values) == ({"EMAIL": 3}, {"EMAIL": 2})


def test_ids_of_tasks_stay_apart_in_all_episodes_and_come_back() -> None:
    ids = ["ann@example.com/1", "bob@example.com", "t7", "ann@example.com/1", "Tulip_77-a"]
    rows = [episode(("a", "password: Tulip_77")).model_copy(update={"task": TaskRef(id=each)}) for each in ids]
    redactor, told = Redactor(), []
    for row in rows:
        told.append(redactor(row))
        assert restore(told[-1], redactor.originals) == row
    assert [row.task.id for row in told] == [
        "<REDACTED_TASK_1>", "<REDACTED_TASK_2>", "t7", "<REDACTED_TASK_1>", "<REDACTED_TASK_3>",
    ]  # fmt: skip
    assert (redactor.counts["REDACTED_TASK"], redactor.values["REDACTED_TASK"]) == (4, 3)
    plain = redactor(episode(("a", "b"), task=TaskRef(id="Tulip_77-a")))  # here nothing gives it away
    assert plain.task.id == "<REDACTED_TASK_3>"
    file = Redactor(Rules(scope="file"))
    assert [file(row).task.id for row in rows[:2]] == ["<EMAIL_1>/1", "<EMAIL_2>"]


def test_what_holds_nothing_is_the_same_object() -> None:
    row, redactor = episode(("look", "A room.")), Redactor()
    assert redactor(row) is row
    assert redactor.originals == {}


WORDS = st.sampled_from(
    ["ann@example.com", "ANN@example.com", "4111 1111 1111 1111", "4111111111111111", "password: Tulip_77", "Tulip_77",
     "AKIAIOSFODNN7EXAMPLE", "+44 20 7946 0958", "<EMAIL_1>", "<CARD_2>", "order 12", "\\n", '"', "123-45-6789", "'"]
)  # fmt: skip
TEXT = st.lists(WORDS, max_size=5).map(" ".join)
EXTRA = st.recursive(TEXT | st.integers(0, 9), lambda v: st.lists(v, max_size=2) | st.dictionaries(TEXT, v, max_size=2))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT), max_size=3), EXTRA)
def test_the_way_back_is_exact_and_a_second_pass_finds_nothing(steps: list[tuple[str, str]], extra: Any) -> None:
    row, redactor = episode(*steps, extra=extra), Redactor()
    told = redactor(row)
    if not _placeholders(row):
        assert restore(told, redactor.originals) == row
    assert Redactor()(told) == told
    assert not any(secret in told.to_json() for secret in ("ann@", "4111", "AKIA", "123-45", "7946"))


def _placeholders(row: Trajectory) -> bool:
    return any(f"<{kind}_" in row.to_json() for kind in ("EMAIL", "CARD"))


def test_the_way_back_leaves_what_it_does_not_know() -> None:
    row = episode(("a", "<EMAIL_7> and <CARD_1>"))
    assert restore(row, {"<CARD_1>": ["4111111111111111"]}).steps[0].observation == "<EMAIL_7> and 4111111111111111"
    assert json.loads(restore(row, {}).to_json()) == json.loads(row.to_json())
