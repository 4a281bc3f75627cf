"""Mutations of a message that know its structure. Each is three plain values, so that a failing case shrinks well."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from peer import Json
from seeds import METHODS
from spec_schemas import VERSIONS
from wire_terms import CLIENT_CAPABILITIES, LOG_LEVEL, MODERN, PROTOCOL_VERSION, SUBSCRIPTION_ID


class Mutation(NamedTuple):
    """One change.

    Attributes:
        kind: a name in `IN_THE_TREE` or `IN_THE_BYTES`.
        at: where, counted in the order of the text and modulo the number of places.
        pick: which of the kind's values, modulo their number.
    """

    kind: str
    at: int
    pick: int


class Text(str):
    """JSON text, or what looks like it, that stands in a message as it is."""

    __slots__ = ()


def encode(value: Any) -> str:
    """Return the text of a value that may hold `Text`."""
    if isinstance(value, Text):
        return value
    if isinstance(value, dict):
        return "{" + ",".join(f"{encode(name)}:{encode(member)}" for name, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(encode, value)) + "]"
    return json.dumps(value)


PLAIN = (None, True, False, 0, 1, -1, 1.5, "", "x", [], {}, [[]], {"": None}, [None], "2026-07-28", "file:///a")
NUMBERS = tuple(
    Text(number)
    for number in (
        *("2147483648", "9007199254740991", "9007199254740993", "-9223372036854775809", "18446744073709551616"),
        *("1e308", "1e309", "-1e999", "5e-324", "-0", "-0.0", "1.0", "1E+2", "0.1", "NaN", "Infinity", "-Infinity"),
        *("1" * 400, "1" * 5000, "-" + "9" * 330, "0." + "1" * 4000, "1e99999999", "01", "+1", ".5", "0x10"),
    )
)
TEXTS = tuple(
    Text(f'"{text}"')
    for text in (
        *(r"\ud800", r"\udc00\ud800", r"\ud83d\ude00", r"\u0000", "\x00", "\x1b[31m", r"\u001b]0;x\u0007", r"\u202e"),
        *("\udcff\udcfe", "é", "Å", r"\u2028", r"\n", r"\x", r"\u12", "\t", "{a}", "%ff%00", "../../etc/passwd"),
        *("a" * 300, "note:" + "%41" * 500, "data:," + "x" * 2000, "https://[::1", "=?base64?/w==?="),
    )
)
DEEP = tuple(
    Text(opened * depth + closed * depth)
    for depth in (20, 63, 64, 65, 127, 129, 500, 5000)
    for opened, closed in (("[", "]"), ('{"a":', "}"))
)
# The big ones are rare: they cost more time than they find.
HUGE = tuple(
    Text('"' + unit * count + '"')
    for count in (*(300, 1_000) * 6, 20_000, 70_000, 1_100_000)
    for unit in ("x", r"\u0041", "é,")
)
MANY = tuple(
    Text(opened + ",".join(item % n if "%d" in item else item for n in range(count)) + closed)
    for count in (*(10, 40, 100) * 6, 3_000, 60_000)
    for opened, item, closed in (("[", "{}", "]"), ("[", "1.5", "]"), ("[", '"%d"', "]"), ("{", '"k%d":{}', "}"))
)
IDS = (
    1,
    2,
    "1",
    "",
    0,
    -1,
    None,
    True,
    1.0,
    1.5,
    {},
    [],
    "x" * 257,
    Text("1e2"),
    Text("9007199254740993"),
    "@question@",
)
NAMES = ("", "ID", "Method", "method ", "__proto__", "_meta", "jsonrpc", "result", "error", "params", "id", "@key@")
VERSION_NAMES = (*VERSIONS, "2099-01-01", "DRAFT", "", 1, None, "2026-07-28 ")
META = (
    None,
    [],
    {},
    "x",
    {PROTOCOL_VERSION: MODERN},
    {CLIENT_CAPABILITIES: {}},
    *(
        {PROTOCOL_VERSION: version, CLIENT_CAPABILITIES: {"elicitation": {}, "sampling": {}}}
        for version in VERSION_NAMES
    ),
    {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: []},
    {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: {"elicitation": None, "sampling": {"tools": 1}, "roots": []}},
    {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: {}, LOG_LEVEL: "loud"},
    {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: {}, SUBSCRIPTION_ID: {}},
    {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: {}, "io.modelcontextprotocol/clientInfo": {"icons": MANY[0]}},
    {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: {}, "traceparent": 1, "baggage": "\n", "progressToken": "p" * 300},
    {"progressToken": None},
    {"progressToken": {}},
    {"progressToken": "@token@"},
    {"io.modelcontextprotocol/": 1, "io.mcp/x": {}, "/": 1, " ": 2, "a/b/c": 3},
    {"x": DEEP[0]},
    {"x": MANY[-8]},
    {"x": HUGE[-6]},
)

Slot = tuple[Any, Any]
"""A container, and the key or the index of one of its items."""


def slots_of(value: Any) -> list[Slot]:
    """Return every place below a value, in the order of the text."""
    found: list[Slot] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found.append((value, key))
        found += slots_of(item)
    return found


def copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def drop(slot: Slot, _pick: int, _pool: Sequence[Json]) -> None:
    container, key = slot
    del container[key]


def duplicate(slot: Slot, pick: int, _pool: Sequence[Json]) -> None:
    container, key = slot
    if isinstance(container, list):
        container[key:key] = [copied(container[key]) for _ in range(1 + pick % 3)]
    else:  # the same name again, with the same value or another one
        again = container[key] if pick % 2 else PLAIN[pick % len(PLAIN)]
        container[key] = Text(f"{encode(container[key])},{encode(key)}:{encode(again)}")


def rename(slot: Slot, pick: int, _pool: Sequence[Json]) -> None:
    container, key = slot
    if isinstance(container, dict):
        names = (*NAMES, *(TEXTS[:10]), key.upper(), key + "\u0000", key.replace("e", "\u0435"))
        container[names[pick % len(names)]] = container.pop(key)


def replace_by(values: Sequence[Any]) -> Callable[[Slot, int, Sequence[Json]], None]:
    def replace(slot: Slot, pick: int, _pool: Sequence[Json]) -> None:
        container, key = slot
        container[key] = copied(values[pick % len(values)])

    return replace


def graft(slot: Slot, pick: int, pool: Sequence[Json]) -> None:
    """Put a part of another message here."""
    container, key = slot
    others = slots_of(pool[pick % len(pool)])
    other, name = others[pick // len(pool) % len(others)]
    container[key] = copied(other[name])


def set_member(name: str, values: Sequence[Any]) -> Callable[[Json, int, Sequence[Json]], None]:
    def change(message: Json, pick: int, _pool: Sequence[Json]) -> None:
        message[name] = copied(values[pick % len(values)])

    return change


def set_params(message: Json, pick: int, pool: Sequence[Json]) -> None:
    """Give a method the params of another one."""
    message["params"] = copied(pool[pick % len(pool)].get("params", []))


def set_meta(message: Json, pick: int, _pool: Sequence[Json]) -> None:
    params = message.setdefault("params", {})
    if isinstance(params, dict):
        params["_meta"] = copied(META[pick % len(META)])


AT_A_SLOT: dict[str, Callable[[Slot, int, Sequence[Json]], None]] = {
    "drop": drop,
    "duplicate": duplicate,
    "rename": rename,
    "type": replace_by(PLAIN),
    "number": replace_by(NUMBERS),
    "text": replace_by(TEXTS),
    "deep": replace_by(DEEP),
    "huge": replace_by(HUGE),
    "many": replace_by(MANY),
    "graft": graft,
}
AT_THE_TOP: dict[str, Callable[[Json, int, Sequence[Json]], None]] = {
    "id": set_member("id", IDS),
    "method": set_member("method", METHODS),
    "params": set_params,
    "_meta": set_meta,
}


MAX_REPEATED = 20_000
"""Bytes of a message that is repeated many times: more would cost minutes and show nothing else."""


def batch(data: bytes, at: int, pick: int, pool: Sequence[Json]) -> bytes:
    """Put the message into an array with others, or many times."""
    many = 101 if len(data) < MAX_REPEATED else 2
    if pick % 8 == 0:
        return (b"[]", b"[1]", b"[[]]", b"[" + data * 2 + b"]", b"[" + b",".join([data] * many) + b"]")[at % 5]
    others = [encode(pool[(at + n * pick) % len(pool)]).encode() for n in range(1 + pick % 4)]
    return b"[" + b",".join([data, *others]) + b"]"


def truncate(data: bytes, at: int, pick: int, _pool: Sequence[Json]) -> bytes:
    return data[: len(data) * (at % 100) // 100] if pick % 2 else data[len(data) * (at % 100) // 100 :]


GARBAGE = (
    b"\x00",
    b"\xff\xfe",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\n",
    b"\r\n",
    b"\xef\xbb\xbf",
    b"{",
    b"}",
    b'"',
    b",",
    b"\\",
)


def garbage(data: bytes, at: int, pick: int, _pool: Sequence[Json]) -> bytes:
    middle = len(data) * (at % 100) // 100
    return data[:middle] + GARBAGE[pick % len(GARBAGE)] * (1 + pick // len(GARBAGE)) + data[middle:]


def encoding(data: bytes, _at: int, pick: int, pool: Sequence[Json]) -> bytes:
    text = data.decode("utf-8", "replace")
    other = encode(pool[pick % len(pool)]).encode()
    return (
        b"\xef\xbb\xbf" + data,
        text.encode("utf-16"),
        text.encode("utf-32-le"),
        b" \n\t" * 50 + data + b" \r\n",
        data + other,
        data + b"\n" + other,
        b"",
        b"null",
    )[pick % 8]


IN_THE_BYTES: dict[str, Callable[[bytes, int, int, Sequence[Json]], bytes]] = {
    "batch": batch,
    "truncate": truncate,
    "garbage": garbage,
    "encoding": encoding,
}
TRIED: Counter[str] = Counter()
"""How often each kind was made in this process."""

KINDS = (*AT_A_SLOT, *AT_THE_TOP, *IN_THE_BYTES)


def mutated(message: Json, mutations: Sequence[Mutation], pool: Sequence[Json]) -> bytes:
    """Return the bytes of a message after these changes; `pool` has other messages, whose parts may be taken."""
    TRIED.update(mutation.kind for mutation in mutations)
    tree = copied(message)
    for kind, at, pick in mutations:
        if kind in AT_THE_TOP:
            AT_THE_TOP[kind](tree, pick, pool)
        elif kind in AT_A_SLOT and (slots := slots_of(tree)):
            AT_A_SLOT[kind](slots[at % len(slots)], pick, pool)
    data = encode(tree).encode("utf-8", "surrogateescape")
    for kind, at, pick in mutations:
        if kind in IN_THE_BYTES:
            data = IN_THE_BYTES[kind](data, at, pick, pool)
    return data
