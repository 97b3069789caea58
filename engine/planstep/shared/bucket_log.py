"""Keeps a shared log in a bucket, through the library obstore: `s3://bucket/shop`, `gs://…`, `az://…`.

    create   PUT, if the name is free ─ done ─▶ True      412, 409 ─▶ False      else ─▶ IoError
    get      GET ─ done ─▶ bytes         404 that says: no such key ─▶ None      else ─▶ IoError

The library sends each request once, since the caller decides by each answer. A request ends after 2 s without a
connection, and after 5 s and one more for each megabyte.

Each error has a sentence of its own, which says what to do. The library's text is not shown: it has what the server
answered, and that may quote a signature or a token.

Left out: credentials from files of the command-line tools, which the library does not read, but for Google's.

Next: fold.py.
"""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from ..errors import FormatError, IoError, MissingExtra, NotSupported
from .objects_log import ObjectsLog, open_root
from .patient import LOG_TIMEOUT, patiently
from .root import is_root, is_temporary
from .shared_log import Root, SharedLog

_CONNECT_MS = 2_000
_REQUEST_MS = 5_000
_MEGABYTE = 1_000_000
_OPENING = 5.0
"""Seconds for which an opening repeats requests without an answer."""
_LINGER = 0.05
"""20 puts a second: servers bill them."""
_NAMES = r"[A-Za-z0-9._=-]+"
_URL = re.compile(f"(s3|gs|az)://({_NAMES})((?:/{_NAMES})+)/?", re.IGNORECASE)
_OWN = ("store", "log/", "floor/", "snap/", "pack/", "probe/", "check-")
"""Names that a log's prefix may have before there is a log."""
_ABSENT = ("NoSuchKey", "BlobNotFound")
_CODE = re.compile("<Code>([A-Za-z]+)</Code>")
_STATUS = re.compile("status code: ([0-9]{3})")
_NO_ANSWER = re.compile(r"\bkind: (Connect|Timeout|Request|Interrupted|Decode)\b")
_OF_THE_MACHINE = ("://169.254.", "metadata.google.internal", "/latest/api/token")
"""Parts of addresses that give a cloud's machines their credentials: the library asks there last."""
_ADDRESS = re.compile("ENDPOINT|_URL$|FULL_URI$")
_T = TypeVar("_T")
_library_of = 0
"""The process that uses the library. Its threads do not outlive a fork: in a child each call would hang."""


class _Cloud(NamedTuple):
    store: str
    config: dict[str, str]
    bucket: str
    credentials: str
    variables: str


_CLOUDS = {
    "s3": _Cloud(
        "S3Store",
        {"conditional_put": "etag", "disable_bulk_delete": "true"},
        "bucket",
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        "AWS_",
    ),
    "gs": _Cloud("GCSStore", {}, "bucket", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_"),
    "az": _Cloud(
        "AzureStore",
        {},
        "container",
        "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_",
    ),
}

SCHEMES = tuple(_CLOUDS)
_REFUSED = "the server refuses the credentials ({code}): set {credentials} anew"
_FORBIDDEN = "the server forbids it ({code}): allow Get, Put, List and Delete on the prefix"
_TOO_LARGE = (
    "the server, or a proxy before it, takes no object of this size ({code}): raise its limit"
)
_SENTENCES = {
    "NoSuchBucket": "there is no such {bucket}: make it first, or mend the URL",
    "InvalidAccessKeyId": _REFUSED,
    "SignatureDoesNotMatch": _REFUSED,
    "ExpiredToken": _REFUSED,
    "InvalidToken": _REFUSED,
    "AuthenticationFailed": _REFUSED,
    "401": _REFUSED,
    "AccessDenied": _FORBIDDEN,
    "AuthorizationPermissionMismatch": _FORBIDDEN,
    "AuthorizationFailure": _FORBIDDEN,
    "403": _FORBIDDEN,
    "413": _TOO_LARGE,
    "EntityTooLarge": _TOO_LARGE,
    "RequestBodyTooLarge": _TOO_LARGE,
    "RequestTimeTooSkewed": "this machine's clock differs from the server's by minutes: set it",
    "301": "the {bucket} is in another region: set AWS_REGION",
    "PermanentRedirect": "the {bucket} is in another region: set AWS_REGION",
    "AuthorizationHeaderMalformed": "the {bucket} is in another region: set AWS_REGION",
}
_SENTENCES["ContainerNotFound"] = _SENTENCES["NoSuchBucket"]
_UNANSWERED = {
    "Connect": "no connection to the server",
    "Timeout": "the server did not answer in time",
    "Request": "the connection broke",
    "Interrupted": "the connection broke",
    "Decode": "the server's answer was cut off",
}


class BucketError(IoError):
    """A request that failed. `code`: the server's word for it, or its status; "" if it gave no answer."""

    code = ""
    unanswered = False
    """The server gave no answer: the next request may have one."""


def open_bucket_log(
    url: str, root: Root | None, timeout: float = LOG_TIMEOUT
) -> tuple[SharedLog, Root]:
    """Opens the log of an `s3:`, `gs:` or `az:` URL; parameters as in `open_shared_log`.

    A new one is made only where the server keeps to the rules. NotSupported, MissingExtra, IoError, FormatError;
    LogUnreachable if the server gives no answer for a while.
    """
    objects = BucketObjects(url)

    def attempt() -> Root | IoError:
        try:
            if root is not None:
                _check_place(objects)
            return open_root(objects, objects.where, root)
        except IoError as error:
            if isinstance(error, BucketError) and error.unanswered:
                raise
            return error

    found = patiently(attempt, objects.where, min(timeout, _OPENING))
    if isinstance(found, IoError):
        raise found
    log = ObjectsLog(objects, objects.where, timeout, linger=_LINGER)
    return log, found


def normal_bucket_url(url: str) -> str:
    """Returns the URL of the same log without a slash at its end; one that is wrong as it is."""
    match = _URL.fullmatch(url)
    return url if match is None else f"{match[1].lower()}://{match[2]}{match[3]}"


def make_bucket_place(url: str) -> "BucketObjects":
    """Checks the server for a log that has no root yet. Errors as `open_bucket_log`."""
    objects = BucketObjects(url)
    _check_place(objects)
    return objects


def _check_place(objects: "BucketObjects") -> None:
    if objects.get("store") is None:
        _check_server(objects)


def erase_bucket_log(url: str) -> None:
    """Removes all that the prefix of a URL has. IoError."""
    objects = BucketObjects(url)
    for name in objects.names(""):
        objects.remove(name)


def _check_server(objects: "BucketObjects") -> None:
    """Checks that the server creates an object only once, and that we may list and remove. NotSupported."""
    others = [name for name in objects.some_names() if not name.startswith(_OWN)]
    if others:
        raise FormatError(
            f"{objects.where} has other objects than a shared log: give the log a prefix of its own"
        )
    objects.check_outside()
    name = f"probe/{os.urandom(8).hex()}"
    try:
        objects.create(name, b"first")
        again = objects.create(name, b"second")
        found = objects.get(name)
    except BucketError as error:
        if error.code in ("NotImplemented", "501"):
            raise NotSupported(
                f"{objects.where}: the server cannot create an object only once, which a shared log needs: "
                "use another server"
            ) from error
        raise
    objects.remove(name)
    if again or found == b"second":
        raise NotSupported(
            f"{objects.where}: the server overwrites what may be created only once (it ignores If-None-Match), "
            "so two machines could own the store: use another server"
        )
    if found is None:
        raise IoError(f"{objects.where} did not keep what was written to it")


class BucketObjects:
    """The objects of a prefix, as shared_log.Objects has them."""

    def __init__(self, url: str) -> None:
        """ValueError; MissingExtra without the library, NotSupported in a fork. No request is sent yet."""
        match = _URL.fullmatch(url)
        if match is None or {".", ".."} & set(url.split("/")):
            raise ValueError(
                "write a bucket's log as s3://bucket/name, with letters, digits and . _ - = in its names; "
                "keys and endpoints come from environment variables"
            )
        scheme, self._bucket, self._prefix = match[1].lower(), match[2], match[3][1:]
        self.where = f"{scheme}://{self._bucket}/{self._prefix}"
        self._cloud = _CLOUDS[scheme]
        _check_addresses(self._cloud.variables)
        self._stores, errors = _library()
        self._taken = errors.AlreadyExistsError, errors.PreconditionError, errors.NotModifiedError
        self._errors = errors.BaseError, OSError, NotImplementedError
        self._clients: dict[int, Any] = {}

    def _client(self, size: int = 0) -> Any:
        """Returns a client whose requests have time for `size` bytes, rounded up to a power of two of megabytes."""
        megabytes = 1 << ((size - 1) // _MEGABYTE).bit_length() if size > _MEGABYTE else 1
        if megabytes not in self._clients:
            settings = {
                "connect_timeout": f"{_CONNECT_MS}ms",
                "timeout": f"{_REQUEST_MS + 1_000 * megabytes}ms",
                **self._cloud.config,
            }
            make = getattr(self._stores, self._cloud.store)
            make = partial(make, self._bucket, prefix=self._prefix, config=settings)
            self._clients[megabytes] = self._ask(partial(make, retry_config={"max_retries": 0}))
        return self._clients[megabytes]

    def create(self, name: str, data: bytes) -> bool:
        client = self._client(len(data))

        def put() -> bool:
            try:
                client.put(name, data, mode="create", use_multipart=False)
            except self._taken:
                return False
            return True

        return self._ask(put) is True

    def get(self, name: str) -> bytes | None:
        def read() -> bytes:
            result = self._client().get(name)
            size = result.meta["size"]
            if size > _MEGABYTE:
                result = self._client(size).get(name)
            data = bytes(result.bytes())
            if len(data) != size:
                raise BucketError(f"{self.where}/{name}: the server cut its answer off")
            return data

        return self._ask(read)

    def sync(self, name: str) -> None:
        """Does nothing: a server that shows an object keeps it."""

    def names(self, prefix: str, start: str = "") -> list[str]:
        return sorted(name for name in self._listed(prefix, start) if name.startswith(prefix))

    def sizes(self) -> dict[str, int]:
        return self._listed("", "")

    def _listed(self, prefix: str, start: str) -> dict[str, int]:
        def listed() -> dict[str, int]:
            chunks = self._client().list(prefix or None, offset=start or None, chunk_size=1_000)
            return {found["path"]: found["size"] for chunk in chunks for found in chunk}

        return self._ask(listed) or {}

    def some_names(self) -> list[str]:
        """Lists names of the prefix, up to a thousand, at the cost of one request."""
        chunks = self._client().list(chunk_size=1_000)
        return [found["path"] for found in self._ask(lambda: next(iter(chunks), [])) or ()]

    def check_outside(self) -> None:
        """FormatError if the prefix is inside another log's, as far as that may be read."""
        above, _, name = self._prefix.rpartition("/")
        while above and not is_temporary(name):
            parent = BucketObjects(f"{self.where[: -len(self._prefix)]}{above}")
            with suppress(BucketError):
                if is_root(parent.get("store") or b""):
                    raise FormatError(
                        f"{self.where} is inside the shared log {parent.where}: choose a prefix outside of it"
                    )
            above = above.rpartition("/")[0]

    def remove(self, name: str) -> None:
        self._ask(partial(self._client().delete, name))

    def tidy(self) -> None:
        """Does nothing: a killed process leaves nothing."""

    def close(self) -> None:
        self._clients.clear()

    def _ask(self, request: Callable[[], _T]) -> _T | None:
        """Returns what a request returns; None if the server has no such object. BucketError."""
        try:
            return request()
        except self._errors as error:
            failure = self._failure(str(error))
        if failure.code in _ABSENT:
            return None
        # Raised here: within `except` it would lead to the library's error, whose text may have secrets.
        raise failure

    def _failure(self, text: str) -> BucketError:
        """Makes an error from the text of one of the library's."""
        code, status = _CODE.search(text), _STATUS.search(text)
        sentence = self._sentence(text, code or status)
        failure = BucketError(f"{self.where}: {sentence}")
        failure.unanswered = sentence in _UNANSWERED.values() or (
            status is not None and status[1][0] == "5"
        )
        failure.code = (code or status or [""] * 2)[1]
        return failure

    def _sentence(self, text: str, answer: re.Match[str] | None) -> str:
        if any(part in text for part in _OF_THE_MACHINE):
            return f"there are no credentials: set {self._cloud.credentials}"
        if "BadScheme" in text:
            return "the endpoint is not encrypted: write https://, or set AWS_ALLOW_HTTP=true"
        if "configured region" in text:
            return _SENTENCES["PermanentRedirect"].format(bucket=self._cloud.bucket)
        if answer is None:
            kind = _NO_ANSWER.search(text)
            if kind is not None:
                return _UNANSWERED[kind[1]]
            return f"the request failed: check {self._cloud.credentials}, and the endpoint"
        sentence = _SENTENCES.get(answer[1], "the server answered {code}")
        return sentence.format(code=answer[1], **self._cloud._asdict())


def _check_addresses(prefix: str) -> None:
    """Checks environment variables that name servers: the library panics at one that is no URL. ValueError."""
    for name, value in os.environ.items():
        if not name.upper().startswith(prefix) or not _ADDRESS.search(name.upper()):
            continue
        try:
            parts = urlsplit(value)
            is_url = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            is_url = False
        if not is_url or " " in value:  # its value may have a password
            raise ValueError(f"{name} is no URL: write it as https://host or http://host:port")


def _library() -> tuple[Any, Any]:
    """Imports obstore, and returns its modules of stores and of errors.

    MissingExtra: other logs do without. NotSupported in a fork of a process that has used it.
    """
    global _library_of
    try:
        from obstore import exceptions, store
    except ImportError as error:
        raise MissingExtra("obstore", "s3") from error
    if _library_of not in (0, os.getpid()):
        raise NotSupported(
            "a log in a bucket does not open in a fork of a process that has used one: begin this process anew, "
            'as multiprocessing does with "spawn"'
        )
    _library_of = os.getpid()
    return store, exceptions
