"""Tests the settings of mode "pulsar", its ids and the numbers of its coordinators."""

from typing import Any

import pytest

from planstep.proto.ids import PARTITION, host_of, tablet_id
from planstep.proto.pulsar.coordinators import coordinator_number, coordinator_tablet
from planstep.proto.pulsar.messages import (
    LEAST_MAX,
    NO_TXN,
    Ack,
    EndTxn,
    NewTxn,
    Send,
    TrimTo,
    TxnID,
    no_space,
    parse_txn,
)
from planstep.proto.pulsar.settings import ERRORS, PulsarSettings


def test_the_defaults_are_allowed() -> None:
    PulsarSettings().check()


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"isolation": "serializable"}, "read_committed"),
        ({"snapshots": "many"}, "segmented"),
        ({"coordinators": 0}, "from 1 to 65,535"),
        ({"coordinators": True}, "from 1 to 65,535"),
        ({"coordinators": 1 << 16}, "from 1 to 65,535"),
        ({"log_batching": 1}, "True or False"),
        ({"log_batch_records": 1}, "from 2 to"),
        ({"ack_log_batch_delay_ms": 0}, "from 0.1 to"),
        ({"transaction_timeout_ms": 1.5}, "from 1 to"),
        ({"message_bytes_max": 1 << 53}, "from 1,024 to"),
        ({"ended_kept": -1}, "from 0 to"),
        ({"nack_redelivery_delay_ms": -1}, "from 0 to"),
        ({"ack_timeout_ms": 0.5}, "from 0 to"),
        ({"operation_timeout_ms": (1 << 53) - 1}, "to 3,155,760,000,000"),
        ({"log_batch_delay_ms": 3.2e12}, "to 3,155,760,000,000"),
        ({"transaction_timeout_ms": 99}, "timeout_tick_ms, 100"),
        ({"timeout_tick_ms": 60_001}, "transaction_timeout_ms"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        PulsarSettings(**settings).check()
    assert next(iter(settings)) in str(refused.value)


def test_allowed_settings() -> None:
    PulsarSettings(coordinators=16, max_active_transactions=0, log_batch_delay_ms=0.5).check()


def test_the_round_trip_is_added_to_the_time_for_an_acknowledgement() -> None:
    assert PulsarSettings().with_rtt(0.5).participant_timeout_ms == 3_001


def test_each_log_has_settings_of_its_own() -> None:
    settings = PulsarSettings(log_batching=True, ack_log_batch_records=7)
    assert settings.log == (True, 512, 4 << 20, 1.0)
    assert settings.ack_log == (False, 7, 4 << 20, 1.0)


def test_codes_are_those_of_the_protocol() -> None:
    assert ERRORS["TransactionConflict"].code == 23
    assert len({kind.code for kind in ERRORS.values() if kind.code is not None}) == 11


def test_an_id_is_read_as_it_is_written() -> None:
    for id in (TxnID(0, 0), TxnID(3, 17), TxnID(LEAST_MAX, LEAST_MAX)):
        assert parse_txn(str(id)) == id


@pytest.mark.parametrize(
    "text", ["", "(", "()", "(1)", "1,2", "(1,2,3)", "(1,-2)", "(1, 2)", "(a,b)", f"(0,{1 << 63})"]
)
def test_other_texts_are_no_ids(text: str) -> None:
    with pytest.raises(ValueError, match="no transaction id"):
        parse_txn(text)


@pytest.mark.parametrize("hosts", [1, 2, 3, 16])
def test_each_coordinator_has_a_tablet_of_its_own(hosts: int) -> None:
    tablets = [coordinator_tablet(n, hosts) for n in range(40)]
    assert len(set(tablets)) == 40
    assert [coordinator_number(tablet, hosts) for tablet in tablets] == list(range(40))
    assert {host_of(tablet) for tablet in tablets} == set(range(hosts))


def test_a_full_disk_refuses_what_takes_space_and_lets_the_rest_pass() -> None:
    tablet = tablet_id(PARTITION, 0, 0)
    for message in (NewTxn(1, 2, 3), Send(1, 2, *NO_TXN, "", 0, b"", 1)):
        refused = no_space(message, tablet)
        assert refused is not None and refused.error == "NoSpace" and refused.request == 2
    for passes in (Ack(1, 2, 0, 1, "c", (), 3), EndTxn(1, 2, 0, 1, True), TrimTo(1, 2, 3)):
        assert no_space(passes, tablet) is None
