"""Schema agreement, on examples worked out by hand."""

import pytest

from worldloom.envs.answer_schema import is_json, schema, schema_agreement


@pytest.mark.parametrize(
    ("text", "is_it"),
    [
        ('{"error": "", "response": "x"}', True),
        (" [1, 2]\n", True),
        ("null", True),
        ('"word"', True),
        ("", False),
        ("{'a': 1}", False),
        ('{"a": 1', False),
        ('{"a": 1} and more', False),
        ('{"a": NaN}', False),
        ("[" * 100_000, False),
    ],
)
def test_is_json(text: str, is_it: bool) -> None:
    assert is_json(text) is is_it


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("7", {("", "number")}),
        ("[]", {("", "list")}),
        ('{"a": 1, "b": null}', {("", "object"), (".a", "number"), (".b", "null")}),
        ('{"a": [1, 2.5, true]}', {("", "object"), (".a", "list"), (".a[]", "number"), (".a[]", "boolean")}),
        (
            '[{"id": 1}, {"id": "x", "tag": "y"}]',
            {("", "list"), ("[]", "object"), ("[].id", "number"), ("[].id", "string"), ("[].tag", "string")},
        ),
        (
            '{"response": "{\'id\': 1, \'on\': True, \'no\': None}"}',
            {("", "object"), (".response", "object"), (".response.id", "number"), (".response.on", "boolean"),
             (".response.no", "null")},
        ),
        (
            '{"response": "{\\"ids\\": [1]}"}',
            {("", "object"), (".response", "object"), (".response.ids", "list"), (".response.ids[]", "number")},
        ),
        ('{"response": "[see below]"}', {("", "object"), (".response", "string")}),
        ('{"response": "{1, 2}"}', {("", "object"), (".response", "string")}),
        ('{"response": "7"}', {("", "object"), (".response", "string")}),
    ],
)  # fmt: skip
def test_schema(text: str, pairs: set[tuple[str, str]]) -> None:
    assert schema(text) == pairs


def test_no_schema() -> None:
    assert schema("<html>") is None


@pytest.mark.parametrize(
    ("predicted", "gold", "share"),
    [
        ('{"b": "y", "a": 2.0}', '{"a": 1, "b": "x"}', 1.0),
        ('{"a": [{"id": 1}]}', '{"a": [{"id": 1}, {"id": 2}, {"id": 3}]}', 1.0),
        # object and a agree, b is missing: 2 of 3
        ('{"a": 1}', '{"a": 1, "b": "x"}', 2 / 3),
        # object agrees; a number, a string: 1 of 3
        ('{"a": "1"}', '{"a": 1}', 1 / 3),
        # object, list, item object, its id agree; the items' name and tag do not: 4 of 6
        ('{"a": [{"id": 1, "name": "x"}]}', '{"a": [{"id": 1}, {"tag": "t"}]}', 4 / 6),
        # an empty list says nothing of its items: 2 of 3
        ('{"a": []}', '{"a": [1]}', 2 / 3),
        # one spells an object where the other has a plain text: 2 of 5 (object, error; response twice, its id)
        ('{"error": "", "response": "no"}', '{"error": "", "response": "{\'id\': 1}"}', 2 / 5),
        ("[1]", "{}", 0.0),
        ("not JSON", "{}", 0.0),
        ("{}", '{"error": "", "response": "cut off...', None),
    ],
)
def test_agreement(predicted: str, gold: str, share: float | None) -> None:
    assert schema_agreement(predicted, gold) == (share if share is None else pytest.approx(share))


def test_agreement_is_symmetric() -> None:
    one, other = '{"a": [1, "x"], "b": {}}', '{"a": [2], "c": null}'
    assert schema_agreement(one, other) == schema_agreement(other, one) == pytest.approx(3 / 6)
