"""Says how Kafka's brokers are reached, and what their errors mean.

    kafka://host:9092,host2:9092/shop     brokers and topic; ?allow_weak=true: a topic of one broker will do
    PLANSTEP_KAFKA_CONFIG                 a file of lines like `security.protocol=SASL_SSL`: encryption, credentials

Secrets are in that file alone. No error shows what it has, nor a URL that is wrong.

Next: kafka_topic.py.
"""

import os
import re
from typing import NamedTuple

from ..errors import IoError

CONFIG = "PLANSTEP_KAFKA_CONFIG"
_HOST = r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
_URL = re.compile(
    rf"kafka://({_HOST}(?:,{_HOST})*)/([A-Za-z0-9._-]{{1,249}})(?:\?allow_weak=(true|false))?",
    re.IGNORECASE,
)
_OF_USERS = re.compile(
    r"(?:security|sasl|ssl|enable\.ssl|client|socket|compression|broker|reconnect|metadata)\.[a-z0-9._]+"
)
"""Settings that users may make; the others are ours."""
_REFUSED = "the brokers refuse the credentials: mend them in the file that {config} names"
_FORBIDDEN = "the brokers forbid it: allow {rights}"
_BEHIND = "too few brokers have the topic in sync (min.insync.replicas)"
_GONE = "the topic is gone"
_SENTENCES = {
    "_AUTHENTICATION": _REFUSED,
    "SASL_AUTHENTICATION_FAILED": _REFUSED,
    "_SSL": "TLS failed: check security.protocol and ssl.ca.location in the file that {config} names",
    "_RESOLVE": "a broker's name is not known to this machine's DNS",
    "_ALL_BROKERS_DOWN": "no connection to any broker",
    "_TRANSPORT": "no connection to a broker",
    "_TIMED_OUT": "the brokers did not answer in time",
    "TOPIC_AUTHORIZATION_FAILED": _FORBIDDEN,
    "CLUSTER_AUTHORIZATION_FAILED": _FORBIDDEN,
    "NOT_ENOUGH_REPLICAS": _BEHIND,
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": _BEHIND,
    "LEADER_NOT_AVAILABLE": "the topic has no leader now",
    "_UNKNOWN_TOPIC": _GONE,
    "UNKNOWN_TOPIC_OR_PART": _GONE,
}
_RIGHTS = "Create, Read, Write, Describe, DescribeConfigs and Delete on the topic"


class Address(NamedTuple):
    """A topic, as a URL names it. `weak`: one of a single broker will do."""

    brokers: str
    topic: str
    weak: bool

    @property
    def where(self) -> str:
        return f"kafka://{self.brokers}/{self.topic}"


def address_of(url: str) -> Address:
    """Parses a URL. ValueError, which does not show it: it may hold a password."""
    match = _URL.fullmatch(url)
    if match is None or match[2] in (".", ".."):
        raise ValueError(
            "write a Kafka topic as kafka://host:9092/topic, or kafka://host:9092,host2:9092/topic, with letters, "
            f"digits and . _ - in the topic's name; credentials come from the file that {CONFIG} names"
        )
    return Address(match[1], match[2], (match[3] or "").lower() == "true")


def settings_of_users() -> dict[str, str]:
    """Reads the file that says how to reach the brokers. ValueError, IoError, which do not show what it has."""
    path = os.environ.get(CONFIG)
    if not path:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise IoError(
            f"the file that {CONFIG} names cannot be read: {type(error).__name__}"
        ) from None
    settings: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not _OF_USERS.fullmatch(name.strip()):
            raise ValueError(
                f"line {number} of the file that {CONFIG} names: write name=value, by librdkafka's names of how "
                "to reach brokers, as security.protocol, sasl.username or ssl.ca.location"
            )
        settings[name.strip()] = value.strip()
    return settings


def sentence_of(code: str) -> str:
    """Returns what an error of Kafka, or of its library, means."""
    return _SENTENCES.get(code, f"Kafka's error {code}").format(config=CONFIG, rights=_RIGHTS)
