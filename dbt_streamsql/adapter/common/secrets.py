"""Secrets of the profile: which values are secret, where they may come from, and hiding them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

ENVIRONMENT = "DBT_ENV_SECRET_"
"""Prefix of the environment variables that may hold secrets; dbt hides their values too."""

HIDDEN = "***"

ON_COMMAND_LINES = (
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraClassPath",
    "spark.driver.extraJavaOptions",
    "spark.driver.extraLibraryPath",
    "spark.driver.memory",
    "spark.executor.defaultJavaOptions",
    "spark.executor.extraClassPath",
    "spark.executor.extraJavaOptions",
    "spark.executor.extraLibraryPath",
)
"""Settings that Spark passes to a JVM as arguments, which every user of the machine can read."""

_WORDS = r"passw(?:or)?d|pwd|passphrase|secret|token|credential|api[-_.]?key|private[-_.]?key"
_KEY = re.compile(
    rf"(?:{_WORDS}|secret[-_.]?(?:access[-_.]?)?key|account\.key(?:\..*)?"
    r"|sas-token(?:\..*)?|connection-string(?:\..*)?|header\.authorization)$",
    re.IGNORECASE,
)
_USER_INFO = re.compile(r"://[^:/?#@\s]*:([^/?#\s]*)@")
# For a whole URL: people do not escape `/` and `@` in passwords. A port is not a password.
_ANY_USER_INFO = re.compile(r"://[^:/?#@\s]*:(?!\d{1,5}[/?])(.*)@", re.DOTALL)
_PARAMETER = re.compile(rf"[?&;][\w.-]*(?:{_WORDS})=([^&;\s]+)", re.IGNORECASE)
_OPTION = re.compile(rf"[\w.-]*(?:{_WORDS})=(\S+)", re.IGNORECASE)

_SHORTEST = 4
"""Length of the shortest text that is hidden: shorter ones would hide parts of words."""

_known: set[str] = set()


def in_url(text: str) -> list[str]:
    """The passwords in a URL, before its host or among its parameters."""
    return [found for found in _ANY_USER_INFO.findall(text) + _PARAMETER.findall(text) if found]


def of_profile(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The place of each secret in the profile's data, and the secret."""
    for key, value in data.items():
        inner = value.items() if isinstance(value, Mapping) else ()
        for name, text in [(key, value), *((f"{key}: {part}", text) for part, text in inner)]:
            if not isinstance(text, str):
                continue
            found = [text] if text and _KEY.search(str(name)) else in_url(text)
            if str(name).split(": ")[-1] in ON_COMMAND_LINES:
                found += _OPTION.findall(text)
            yield from ((name, secret) for secret in found)
    connections = data.get("connections")
    if isinstance(connections, Mapping):
        for key, options in connections.items():
            for name, secret in of_profile(options) if isinstance(options, Mapping) else ():
                yield f"connections: {key}: {name}", secret
            # Such as a JAAS configuration, which holds a user and a password.
            texts = options.items() if isinstance(options, Mapping) else ()
            for name, text in texts:
                if isinstance(text, str) and not _KEY.search(str(name)):
                    found = [secret.strip("\"';") for secret in _OPTION.findall(text)]
                    yield from (
                        (f"connections: {key}: {name}", secret) for secret in found if secret
                    )


def from_environment() -> list[str]:
    """The values of all variables that may hold secrets."""
    return [value for name, value in os.environ.items() if name.startswith(ENVIRONMENT) and value]


def is_literal(secret: str) -> bool:
    """Whether the secret is written in the file: no variable for secrets provides it."""
    given = from_environment()
    return not any(
        value in unquote(secret) or value in secret or secret in value for value in given
    )


def problems_of(data: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the secrets of a profile. No message here contains one."""
    for place in dict.fromkeys(name for name, secret in of_profile(data) if is_literal(secret)):
        yield (
            f"`{place}` contains a secret in plain text: use "
            f"\"{{{{ env_var('{ENVIRONMENT}…') }}}}\" instead"
        )
    properties = data.get("spark_properties")
    if not isinstance(properties, Mapping):
        return
    for key in ON_COMMAND_LINES:
        text = str(properties.get(key, ""))
        if _OPTION.search(text) or any(secret in text for secret in _long(from_environment())):
            yield (
                f"`spark_properties: {key}` contains a secret and shows in the process list: "
                "pass it to the JVM in a file, or in the variable JDK_JAVA_OPTIONS"
            )


def remember(secrets: Iterable[str]) -> None:
    """Hide these from now on, as written and with URL escapes decoded."""
    for secret in secrets:
        _known.update(_long((secret, unquote(secret))))


def scrub(text: str) -> str:
    """The text with every known secret and every password of a URL hidden."""
    # Long ones first: a secret may be part of another.
    for secret in sorted(_known.union(_long(from_environment())), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    for pattern in (_USER_INFO, _PARAMETER):
        text = pattern.sub(_hidden, text)
    return text


def _hidden(match: re.Match[str]) -> str:
    whole, start = match.group(0), match.start(0)
    return whole[: match.start(1) - start] + HIDDEN + whole[match.end(1) - start :]


def _long(texts: Iterable[str]) -> list[str]:
    return [text for text in texts if len(text) >= _SHORTEST]
