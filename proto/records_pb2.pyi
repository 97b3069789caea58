from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class LinkFrame(_message.Message):
    __slots__ = ("source", "target", "first", "messages", "acknowledged", "datagrams")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    DATAGRAMS_FIELD_NUMBER: _ClassVar[int]
    source: int
    target: int
    first: int
    messages: _containers.RepeatedScalarFieldContainer[bytes]
    acknowledged: int
    datagrams: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, source: _Optional[int] = ..., target: _Optional[int] = ..., first: _Optional[int] = ..., messages: _Optional[_Iterable[bytes]] = ..., acknowledged: _Optional[int] = ..., datagrams: _Optional[_Iterable[bytes]] = ...) -> None: ...

class StoreMeta(_message.Message):
    __slots__ = ("format", "store_id", "mode", "hosts", "host", "first_id", "folder_id")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    FIRST_ID_FIELD_NUMBER: _ClassVar[int]
    FOLDER_ID_FIELD_NUMBER: _ClassVar[int]
    format: int
    store_id: bytes
    mode: str
    hosts: int
    host: int
    first_id: bytes
    folder_id: bytes
    def __init__(self, format: _Optional[int] = ..., store_id: _Optional[bytes] = ..., mode: _Optional[str] = ..., hosts: _Optional[int] = ..., host: _Optional[int] = ..., first_id: _Optional[bytes] = ..., folder_id: _Optional[bytes] = ...) -> None: ...

class LogBatch(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, records: _Optional[_Iterable[bytes]] = ...) -> None: ...
