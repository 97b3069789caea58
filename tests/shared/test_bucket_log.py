"""Tests a shared log in a bucket, on the wire: lost answers, refusals, wrong servers, wrong settings."""

import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit import python
from s3_kit import InBucket, new_bucket, use_server
from shared_kit import ROOT, at, begin_behind, history, nonce, read_all, slot, turn_behind

import planstep
from planstep.bench.proof.s3_servers import request
from planstep.bench.proof.s3_wire import Wire
from planstep.errors import (
    Fenced,
    FormatError,
    IoError,
    LogUnreachable,
    MissingExtra,
    NotSupported,
)
from planstep.shared import bucket_log
from planstep.shared.bucket_log import BucketObjects, open_bucket_log
from planstep.shared.entry import Entry, Owner
from planstep.shared.objects_log import ObjectsLog
from planstep.shared.registry import open_shared_log


@pytest.fixture
def log_behind(wire: Wire, server: str) -> Callable[..., ObjectsLog]:
    """Opens a log through the wire, behind the first turn of a new one."""
    bucket = InBucket(server, ROOT)
    bucket.open().append(history(1)[0])

    def opened(timeout: float = 60.0) -> ObjectsLog:
        log = ObjectsLog(BucketObjects(bucket.url), bucket.url, timeout, pause=0.001)
        log.open(at(history(1)[0]))
        wire.seen.clear()
        return log

    return opened


def all_of(log: ObjectsLog) -> list[Entry]:
    return read_all(ObjectsLog(log.objects, "the same", 60.0))


# the wire --------------------------------------------------------------------------------------


def test_an_append_is_one_request(wire: Wire, log_behind: Any) -> None:
    log_behind().append(history(2)[1])
    assert wire.seen == ["PUT"]


@pytest.mark.parametrize("fault", ["lost", "twice", "refused", "409", "412", "503", "500", "late"])
def test_an_append_gets_through_one_trouble(wire: Wire, log_behind: Any, fault: str) -> None:
    entries = history(2)
    log = log_behind()
    wire.faults_of_puts(fault)
    log.append(entries[1])
    landed = fault in ("lost", "twice")
    assert wire.seen == [f"PUT {fault}", "GET", *([] if landed else ["PUT"])]
    wire.deliver()
    assert all_of(log) == entries


@pytest.mark.parametrize("fault", ["lost", "twice", "409", "refused"])
def test_an_append_gets_through_a_trouble_that_stays_for_a_while(
    wire: Wire, log_behind: Any, fault: str
) -> None:
    entries = history(30)
    log = log_behind()
    for entry in entries[1:]:
        wire.faults_of_puts(fault, fault)
        log.append(entry)
    assert all_of(log) == entries


def test_a_log_waits_while_the_server_is_overloaded(wire: Wire, log_behind: Any) -> None:
    entries = history(2)
    log = log_behind()
    left = ["503 SlowDown"] * 6
    wire.faults = lambda method, path: left.pop(0) if left else ""
    log.append(entries[1])
    left += ["503"] * 6
    assert all_of(log) == entries
    assert not left


def test_a_turn_that_arrives_after_another_one_is_fenced(wire: Wire, log_behind: Any) -> None:
    first = history(1)[0]
    log, taker = log_behind(0.0), log_behind()
    mine = turn_behind(first, first.owner, b"mine")
    wire.faults_of_puts("late")
    with pytest.raises(LogUnreachable, match="was not reached"):
        log.append(mine)
    taken = begin_behind(first, Owner(2, nonce("taker")))
    taker.append(taken)
    wire.deliver()
    with pytest.raises(Fenced, match="term 2"):
        log.append(mine)
    assert all_of(log) == [first, taken]


def test_a_server_that_is_not_there_is_unreachable(
    bucket: InBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_server(monkeypatch, "http://127.0.0.1:1")
    log = ObjectsLog(BucketObjects(bucket.url), bucket.url, 0.1)
    with pytest.raises(LogUnreachable, match=r"was not reached .* no connection to the server"):
        log.append(history(1)[0])
    with pytest.raises(
        LogUnreachable, match=r"not reached for 5 seconds .* no connection to the server"
    ):
        open_shared_log(bucket.url, None)


def test_a_request_without_an_answer_ends(
    wire: Wire, log_behind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_log, "_REQUEST_MS", -800)
    log = log_behind(0.0)
    wire.faults = lambda method, path: "hang"
    with pytest.raises(LogUnreachable, match="the server did not answer in time"):
        log.append(history(2)[1])


def test_large_turns_have_more_time_and_come_back_whole(bucket: InBucket) -> None:
    first = history(1)[0]
    large = turn_behind(first, first.owner, bytes(range(256)) * 20_000)
    log = bucket.open()
    log.append(first)
    log.append(large)
    assert read_all(bucket.open()) == [first, large]
    objects: Any = bucket.objects()
    assert sorted(objects._clients) == [1, 8]


def test_a_list_of_three_pages_comes_whole(bucket: InBucket) -> None:
    for turn in range(121, 1, -1):
        bucket.write(slot(turn), b"?")
    assert bucket.objects().names("log/") == [slot(turn) for turn in range(2, 122)]
    assert bucket.objects().names("floor/") == []


# stores ----------------------------------------------------------------------------------------


def test_a_store_lives_in_a_bucket(wire: Wire, server: str, tmp_path: Path) -> None:
    url = f"s3://{new_bucket(server)}/a/shop"
    with planstep.open(tmp_path / "first", replicate=url) as db:
        table = db.create_table("t")
        for n in range(20):
            wire.faults_of_puts(*("lost", "409", "twice", "503")[n % 4 :])
            table.put(n, n)
        second = planstep.open(tmp_path / "second", replicate=url, takeover=True)
        with pytest.raises(planstep.Fenced):
            table.put("late", 1)
    with second:
        assert [value for _, value in second.table("t").scan()] == list(range(20))
        second.table("t").put(20, 20)
    with planstep.open(tmp_path / "third", replicate=url) as third:
        assert third.table("t").get(20) == 20


def test_a_log_that_is_not_there_is_not_made_by_looking(wire: Wire, server: str) -> None:
    name = new_bucket(server)
    with pytest.raises(FormatError, match=f"s3://{name}/shop is no shared log"):
        open_shared_log(f"s3://{name}/shop", None)
    assert wire.seen == ["GET"]


# servers ---------------------------------------------------------------------------------------


def test_a_new_log_leaves_nothing_but_its_root(wire: Wire, server: str) -> None:
    url = f"s3://{new_bucket(server)}/shop"
    log, root = open_shared_log(url, ROOT)
    assert root == ROOT
    assert isinstance(log, ObjectsLog) and log.objects.names("") == ["store"]
    again, other = open_shared_log(url, ROOT._replace(store_id=b"another store id"))
    assert other == ROOT
    log.close()
    again.close()


def test_a_server_that_ignores_the_condition_is_refused(wire: Wire, server: str) -> None:
    name = new_bucket(server)
    wire.faults = lambda method, path: "plain" if method == "PUT" else ""
    with pytest.raises(NotSupported, match="overwrites what may be created only once"):
        open_shared_log(f"s3://{name}/shop", ROOT)
    assert b"<Key>" not in request("GET", f"{server}/{name}?list-type=2")


def test_a_server_that_does_not_know_the_condition_is_refused(wire: Wire, server: str) -> None:
    wire.faults_of_puts("501 NotImplemented")
    with pytest.raises(NotSupported, match="cannot create an object only once"):
        open_shared_log(f"s3://{new_bucket(server)}/shop", ROOT)


def test_a_server_that_keeps_nothing_makes_no_log(wire: Wire, server: str) -> None:
    wire.faults_of_puts("409", "409")
    with pytest.raises(IoError, match="did not keep what was written"):
        open_shared_log(f"s3://{new_bucket(server)}/shop", ROOT)


def test_a_prefix_of_something_else_is_refused(bucket: InBucket) -> None:
    request_url = bucket.url.replace("/shop", "/other")
    objects = BucketObjects(request_url)
    assert objects.create("sales/2026.csv", b"1")
    with pytest.raises(FormatError, match="give the log a prefix of its own"):
        open_shared_log(request_url, ROOT)
    assert objects.names("") == ["sales/2026.csv"]


def test_a_prefix_inside_another_log_is_refused(bucket: InBucket) -> None:
    open_shared_log(bucket.url, ROOT)
    with pytest.raises(FormatError, match=r"is inside the shared log .*/shop: choose a prefix"):
        open_shared_log(f"{bucket.url}/a/b", ROOT)


@pytest.mark.parametrize("fault", ["refused", "lost", "503"])
def test_an_opening_asks_again_where_no_answer_came(wire: Wire, server: str, fault: str) -> None:
    left = [fault] * 3
    wire.faults = lambda method, path: left.pop() if left else ""
    log, _ = open_shared_log(f"s3://{new_bucket(server)}/shop", ROOT)
    assert not left
    log.close()


def test_an_opening_without_any_answer_ends_soon(wire: Wire, server: str) -> None:
    wire.faults = lambda method, path: "refused"
    with pytest.raises(LogUnreachable, match=r"not reached for 0\.2 seconds \(.*connection broke"):
        open_shared_log(f"s3://{new_bucket(server)}/shop", ROOT, 0.2)


def test_a_404_that_names_no_key_is_no_end_of_the_log(wire: Wire, log_behind: Any) -> None:
    log = log_behind(0.0)
    wire.faults = lambda method, path: "404"
    with pytest.raises(LogUnreachable, match="the server answered 404"):
        log.read(1, 0)
    with pytest.raises(LogUnreachable):
        log.barrier()


# refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_ENDPOINT_URL", "localhost:9000"),
        ("AWS_ENDPOINT_URL", "https://h:port"),
        ("AWS_ENDPOINT_URL", "https://a b"),
        ("AWS_ENDPOINT_URL", ""),
        ("AWS_ENDPOINT", "/shop"),
        ("aws_endpoint_url", "ftp://h"),
    ],
)
def test_an_endpoint_that_is_no_url_is_refused(
    bucket: InBucket, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"{name} is no URL: write it as https://"):
        open_shared_log(bucket.url, ROOT)


REFUSALS = {
    "404 NoSuchBucket": "there is no such bucket: make it first",
    "403 InvalidAccessKeyId": "refuses the credentials (InvalidAccessKeyId): set AWS_ACCESS_KEY_ID and",
    "403 SignatureDoesNotMatch": "refuses the credentials (SignatureDoesNotMatch): set AWS_ACCESS_KEY_ID",
    "400 ExpiredToken": "refuses the credentials (ExpiredToken)",
    "401": "refuses the credentials (401)",
    "403 AccessDenied": "forbids it (AccessDenied): allow Get, Put, List and Delete",
    "403": "forbids it (403): allow Get, Put, List and Delete",
    "403 RequestTimeTooSkewed": "this machine's clock differs from the server's",
    "301 PermanentRedirect": "in another region: set AWS_REGION",
    "400 AuthorizationHeaderMalformed": "in another region: set AWS_REGION",
    "503 SlowDown": "the server answered SlowDown",
    "413 EntityTooLarge": "takes no object of this size (EntityTooLarge): raise its limit",
    "500": "the server answered 500",
    "refused": "the connection broke",
}


@pytest.mark.parametrize("answer", REFUSALS)
@pytest.mark.parametrize("asked", ["get", "put", "list", "delete"])
def test_a_refusal_says_what_to_do_and_no_secret(
    wire: Wire, server: str, answer: str, asked: str
) -> None:
    objects = BucketObjects(f"s3://{new_bucket(server)}/shop")
    requests: dict[str, Callable[[], object]] = {
        "get": lambda: objects.get("store"),
        "put": lambda: objects.create("store", b"x"),
        "list": lambda: objects.names("log/"),
        "delete": lambda: objects.remove("store"),
    }
    wire.faults = lambda method, path: answer
    with pytest.raises(IoError) as refused:
        requests[asked]()
    assert REFUSALS[answer] in str(refused.value)
    assert str(refused.value).startswith(objects.where)
    assert "a-secret" not in "".join(traceback.format_exception(refused.value))
    assert refused.value.__cause__ is refused.value.__context__ is None


def test_a_bucket_that_is_not_there_is_named(wire: Wire) -> None:
    with pytest.raises(IoError, match="s3://none/shop: there is no such bucket"):
        open_shared_log("s3://none/shop", ROOT)


def test_without_credentials_it_says_which(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(IoError, match="there are no credentials: set AWS_ACCESS_KEY_ID and"):
        open_shared_log("s3://bucket/shop", ROOT)


def test_half_of_the_credentials_is_too_little(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(IoError, match="check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        open_shared_log("s3://bucket/shop", ROOT)


def test_an_endpoint_without_encryption_is_asked_for(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with pytest.raises(IoError, match="set AWS_ALLOW_HTTP=true"):
        open_shared_log("s3://bucket/shop", ROOT)


@pytest.mark.parametrize("url", ["gs://bucket/shop", "az://container/shop"])
def test_other_clouds_say_what_they_lack(
    server: str, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # Google's library looks for credentials there
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(IoError, match=r"GOOGLE_APPLICATION_CREDENTIALS|AZURE_STORAGE_ACC"):
        open_shared_log(url, ROOT)


# URLs and extras -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "s3:bucket/shop",
        "s3://",
        "s3://bucket",
        "s3://bucket/",
        "s3:///shop",
        "s3://key:a-secret@bucket/shop",
        "s3://bucket/shop?X-Amz-Signature=a-secret",
        "s3://bucket/shop#a-secret",
        "s3://bucket/../shop",
        "s3://bucket/./shop",
        "s3://../shop",
        "s3://./shop",
        "s3://bucket//shop",
        "s3://bucket/shop//",
        "s3://bucket/a%2Fb",
        "s3://bucket/käse",
        "s3://bucket/shop\n",
        "gs://bucket",
        "az://container",
    ],
)
def test_a_url_that_names_no_prefix_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(ValueError, match="write a bucket's log as s3://bucket/name") as refused:
        open_shared_log(url, ROOT)
    assert "a-secret" not in str(refused.value)


def test_the_scheme_is_as_people_write_it(bucket: InBucket) -> None:
    log, root = open_bucket_log(bucket.url.replace("s3:", "S3:") + "/", None)
    assert root == ROOT
    log.close()


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingExtra, match=r'pip install "planstep\[s3\]"'):
        open_shared_log("s3://bucket/shop", ROOT)


def test_the_library_is_imported_for_buckets_alone(tmp_path: Path) -> None:
    program = (
        "import sys, planstep; planstep.open(sys.argv[1], replicate=sys.argv[2]).close(); "
        "assert 'obstore' not in sys.modules"
    )
    words = [str(tmp_path / "store"), (tmp_path / "log").as_uri()]
    subprocess.run([sys.executable, "-c", program, *words], check=True)


FORKED = """
import os, signal, sys
from planstep.errors import NotSupported
from planstep.shared.bucket_log import BucketObjects

assert BucketObjects(sys.argv[1]).names("") == ["store"]
if os.fork():
    os.wait()
else:
    signal.alarm(60)
    try:
        print(BucketObjects(sys.argv[1]).names(""))
    except NotSupported as error:
        print(error)
"""


def test_a_forked_process_is_refused_and_does_not_hang(
    monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    use_server(monkeypatch, server)
    bucket = InBucket(server, ROOT)
    assert "spawn" in python(FORKED, bucket.url).stdout
