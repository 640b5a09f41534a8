"""The `config.json` of a repository on the Hugging Face hub: the only network access of memlint, for `memlint models add`.

With huggingface_hub installed (the extra `[hf]`) it is asked, and its cache, login and settings count; else one plain request
is made. Either way memlint asks for this one file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from memlint.models.local import MAX_BYTES

HUB = "https://huggingface.co"
SECONDS = 30


class NotFetched(Exception):
    """Why there is no configuration, as a sentence for a person."""


def fetch(model_id: str, revision: str = "main") -> str:
    """The text of a repository's configuration; raises `NotFetched`."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise NotFetched("HF_HUB_OFFLINE is set: nothing may be fetched")
    read = _with_huggingface_hub if find_spec("huggingface_hub") else _plainly
    text = read(model_id, revision)
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        raise NotFetched(f"the config.json of {model_id} is not JSON") from None
    if not isinstance(config, dict) or not (config.get("model_type") or config.get("architectures")):
        raise NotFetched(f"the config.json of {model_id} names no model_type: memlint cannot read its shape")
    return text


def _with_huggingface_hub(model_id: str, revision: str) -> str:
    hub = import_module("huggingface_hub")
    errors = import_module("huggingface_hub.errors")
    try:
        with open(hub.hf_hub_download(model_id, "config.json", revision=revision), encoding="utf-8") as file:
            return _bounded(file.read(MAX_BYTES + 1), model_id)
    except errors.GatedRepoError:
        raise NotFetched(_refused("GatedRepo", model_id, revision)) from None
    except errors.RepositoryNotFoundError:
        raise NotFetched(_refused("RepoNotFound", model_id, revision)) from None
    except errors.RevisionNotFoundError:
        raise NotFetched(_refused("RevisionNotFound", model_id, revision)) from None
    except errors.LocalEntryNotFoundError:
        raise NotFetched(_unreachable("no connection")) from None
    except errors.EntryNotFoundError:
        raise NotFetched(_refused("EntryNotFound", model_id, revision)) from None
    except Exception as error:  # whatever its HTTP library says; the versions use different ones
        raise NotFetched(_unreachable(" ".join(str(error).split())[:200])) from None


def _plainly(model_id: str, revision: str) -> str:
    request = import_module("urllib.request")
    errors = import_module("urllib.error")
    url = f"{_endpoint()}/{model_id}/resolve/{revision}/config.json"
    asked = request.Request(url, headers={"User-Agent": "memlint"})
    if token := os.environ.get("HF_TOKEN"):
        asked.add_unredirected_header("Authorization", f"Bearer {token}")  # for the hub alone, not where it sends us
    try:
        with request.urlopen(asked, timeout=SECONDS) as answer:
            return _bounded(answer.read(MAX_BYTES + 1).decode("utf-8"), model_id)
    except errors.HTTPError as error:
        raise NotFetched(_refused(_code(error.code, error.headers), model_id, revision)) from None
    except errors.URLError as error:
        raise NotFetched(_unreachable(str(error.reason))) from None
    except (OSError, ValueError) as error:
        raise NotFetched(_unreachable(str(error))) from None


def _endpoint() -> str:
    """The hub's address, `HF_ENDPOINT` for a mirror (huggingface_hub 2.4 `constants.py`)."""
    return os.environ.get("HF_ENDPOINT", HUB).rstrip("/")


def _code(status: int, headers: Mapping[str, Any]) -> str:
    """The hub's own word for an error (huggingface_hub 2.4 `utils/_http.py`, `X-Error-Code`), else what the status comes closest to."""
    guessed = {401: "RepoNotFound", 403: "GatedRepo", 404: "EntryNotFound"}.get(status, f"HTTP status {status}")
    return str(headers.get("X-Error-Code") or guessed)


def _refused(code: str, model_id: str, revision: str) -> str:
    page = f"{_endpoint()}/{model_id}"
    return {
        "GatedRepo": f"{model_id} is gated: accept its terms at {page} and set HF_TOKEN to a token of yours that may read it",
        "RepoNotFound": f"the hub has no {model_id} that you may read (misspelt, or private: set HF_TOKEN)",
        "RevisionNotFound": f"{model_id} has no revision {revision!r}",
        "EntryNotFound": f"{model_id} has no config.json (an adapter, a GGUF file or a pipeline: add the model that it is made of)",
    }.get(code, f"the hub does not give the config.json of {model_id}: {code}")


def _unreachable(reason: str) -> str:
    return f"the hub cannot be reached at {_endpoint()}: {reason}"


def _bounded(text: str, model_id: str) -> str:
    if len(text) > MAX_BYTES:
        raise NotFetched(f"the config.json of {model_id} is larger than {MAX_BYTES >> 20} MiB")
    return text
