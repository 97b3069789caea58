"""Stores a tablet's keys in a dict, so that a core runs without a host."""

from typing import Any


class DictSpace:
    """A tablet's space. `dropped`: payloads that were freed, by address."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Any] = {}
        self.payloads: dict[int, bytes] = {}
        self.dropped: list[int] = []
        self._address = 100

    def get(self, key: bytes) -> Any:
        return self.rows.get(key)

    def put(self, key: bytes, value: Any) -> None:
        self.rows[key] = value

    def delete(self, key: bytes) -> None:
        del self.rows[key]

    def scan(
        self, begin: bytes, end: bytes, *, reverse: bool = False, limit: int | None = None
    ) -> list[tuple[bytes, Any]]:
        keys = sorted((key for key in self.rows if begin <= key < end), reverse=reverse)
        return [(key, self.rows[key]) for key in keys[:limit]]

    def put_version(self, key: bytes, old: Any, new: Any, step: int) -> None:
        assert self.rows.get(key) == old, "what is superseded is what was there"
        if new is None:
            del self.rows[key]
        else:
            self.rows[key] = new

    def append_payload(self, data: bytes) -> int:
        address, self._address = self._address, self._address + len(data)
        self.payloads[address] = data
        return address

    def drop_payload(self, address: int, length: int) -> None:
        assert len(self.payloads.pop(address)) == length
        self.dropped.append(address)
