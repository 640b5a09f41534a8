"""Fetching a config.json: by a plain request, and through huggingface_hub where it is installed, from a server on this machine."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import CONFIG, Hub, hub

from memlint.models.hub import NotFetched, fetch

WAYS = ["plain", *(["huggingface_hub"] if importlib.util.find_spec("huggingface_hub") else [])]
"""huggingface_hub comes with the extra; without it there is one way less to test."""


@pytest.fixture(params=WAYS)
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """The hub's stand-in as HF_ENDPOINT, and one way to ask it."""
    with hub() as running:
        for name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        if request.param == "plain":
            monkeypatch.setattr("memlint.models.hub.find_spec", lambda name: None)
        else:
            forget_settings(monkeypatch, running, tmp_path)
        yield running


def forget_settings(monkeypatch: pytest.MonkeyPatch, running: Hub, home: Path) -> None:
    """huggingface_hub reads the environment once, when it is imported."""
    from huggingface_hub import constants

    for name, value in {
        "ENDPOINT": running.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": running.url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(home / "hub"),
        "HF_HUB_OFFLINE": False,
        "HF_TOKEN_PATH": str(home / "token"),
    }.items():
        monkeypatch.setattr(constants, name, value)


def test_the_configuration_comes_as_it_is(server: Hub) -> None:
    server.holds("org/model")
    assert json.loads(fetch("org/model")) == CONFIG
    asked = {path for path, _ in server.asked} - {"/api/agent-harnesses"}  # huggingface_hub's own question
    assert asked == {"/org/model/resolve/main/config.json"}


def test_another_revision(server: Hub) -> None:
    server.holds("org/model", revision="v2")
    assert json.loads(fetch("org/model", "v2")) == CONFIG


def test_a_token_is_shown_to_the_hub(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    server.holds("org/model")
    fetch("org/model")
    assert server.asked[0][1] == "Bearer hf_secret"


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "GatedRepo", "org/model is gated: accept its terms at"),
        (401, "RepoNotFound", "the hub has no org/model that you may read"),
        (404, "EntryNotFound", "org/model has no config.json"),
        (404, "RevisionNotFound", "org/model has no revision 'main'"),
    ],
)
def test_what_the_hub_refuses_is_said(server: Hub, status: int, code: str, message: str) -> None:
    server.refuses("org/model", status, code)
    with pytest.raises(NotFetched, match=message):
        fetch("org/model")


def test_an_unknown_id(server: Hub) -> None:
    with pytest.raises(NotFetched, match="the hub has no org/typo that you may read"):
        fetch("org/typo")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>", "is not JSON"),
        (b"[]", "names no model_type"),
        (b"{}", "names no model_type"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"model_type": "' + b"x" * (3 << 20) + b'"}', "larger than 2 MiB"),
    ],
)
def test_what_is_no_configuration_is_refused(server: Hub, body: bytes, message: str) -> None:
    server.holds("org/model", body)
    with pytest.raises(NotFetched, match=message):
        fetch("org/model")


def test_no_network(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    server.server_close()  # nobody listens there any more
    with pytest.raises(NotFetched, match="the hub cannot be reached at http://127"):
        fetch("org/model")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(NotFetched, match="HF_HUB_OFFLINE is set"):
        fetch("org/model")


def test_a_redirect_does_not_carry_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub sends large files to other hosts; a plain request must not show them the token."""
    monkeypatch.setattr("memlint.models.hub.find_spec", lambda name: None)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with hub() as other, hub() as first:
        other.holds("org/model")
        first.answers["/org/model/resolve/main/config.json"] = (
            302,
            {"Location": f"{other.url}/org/model/resolve/main/config.json"},
            b"",
        )
        monkeypatch.setenv("HF_ENDPOINT", first.url)
        assert json.loads(fetch("org/model")) == CONFIG
        assert (first.asked[0][1], other.asked[0][1]) == ("Bearer hf_secret", None)
