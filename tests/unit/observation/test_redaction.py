"""Secrets do not get into logs, and values cannot look like lines or move a terminal's cursor."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import Config
from penstock.escapes import escaped, on_one_line
from penstock.observation.redaction import HIDDEN, Redactor

CANARY = "c4n4ry-of-mine"


@pytest.mark.parametrize(
    "text",
    [
        f"sasl.password={CANARY}",
        f"sasl.password = '{CANARY}' was refused",
        f"{{'sasl.password': '{CANARY}', 'acks': 'all'}}",
        f'{{"admin_token": "{CANARY}"}}',
        f'PlainLoginModule required username="me" password="{CANARY}";',
        f'password="with \\" a quote {CANARY}"',
        f"cannot reach https://me:{CANARY}@registry.example/subjects",
        f"Authorization: Bearer {CANARY}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{CANARY}",
    ],
)
def test_what_sounds_like_a_secret_is_hidden(text: str) -> None:
    shown = Redactor()(text)
    assert CANARY not in shown
    assert HIDDEN in shown
    assert Redactor()(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "restored 2 lanes (fresh): 0 records in 0.1 s",
        "the token bucket is empty",
        "https://example.org/a:b",
        "acks=all, group.id=words",
        "a basic rule",
    ],
)
def test_other_text_is_not_changed(text: str) -> None:
    assert Redactor()(text) == text


@given(st.text(min_size=4, max_size=30), st.text(max_size=20), st.text(max_size=20))
def test_a_known_secret_is_hidden_anywhere_in_a_text(secret: str, before: str, after: str) -> None:
    redact = Redactor([secret])
    for form in (secret, json.dumps(secret), repr(secret)):
        assert secret not in redact(before + form + after).replace(HIDDEN, "")


def test_the_secrets_of_a_configuration_are_known() -> None:
    config = Config(
        kafka={"bootstrap.servers": "b:1", "sasl.password": "first-secret", "producer.ssl.key.password": "second-secret"},
        spark={"spark.hadoop.fs.s3a.access.key": "third-secret"},
        admin_token="fourth-secret",
        admin_read_token="fifth-secret",
    )
    text = "first-secret second-secret third-secret fourth-secret fifth-secret b:1"
    assert Redactor.of(config)(text) == " ".join([HIDDEN] * 5 + ["b:1"])


def test_a_secret_that_contains_another_is_hidden_completely() -> None:
    assert Redactor(["pass", "password-1"])("x password-1 y") == f"x {HIDDEN} y"


def test_very_short_secrets_are_not_searched_for() -> None:
    assert Redactor(["a"])("a banana") == "a banana"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, \ttabs and\nlines, ünïcödé 漢字 🙂", None),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("over\rwritten\x85", "over\\x0dwritten\\x85"),
        ("user\u202etxt.exe\u2066", "user\\u202etxt.exe\\u2066"),
        ("a\u2028b\u2029", "a\\u2028b\\u2029"),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_deceptive_characters_are_escaped(text: str, shown: str | None) -> None:
    assert escaped(text) == (text if shown is None else shown)
    assert "\n" not in on_one_line(f"{text}\n")


def test_the_password_of_the_schema_registry_is_hidden_alone_too() -> None:
    registry = {"url": "https://registry", "basic.auth.user.info": "ann:hunter2hunter2"}
    config = Config(kafka={"bootstrap.servers": "b:1"}, schema_registry=registry)
    assert Redactor.of(config)("ann:hunter2hunter2 hunter2hunter2") == f"{HIDDEN} {HIDDEN}"
