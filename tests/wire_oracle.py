"""What a server of ours sends is held against the schema file of its revision, message by message, whatever a test is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spec_schemas import (
    SPEC_DIR,
    VERSIONS,
    definitions,
    extension_methods,
    extension_validator,
    is_extension,
    request_definitions,
    validator,
)
from wire_terms import MODERN, NEWEST_LEGACY, PROTOCOL_VERSION

Message = dict[str, Any]


class WireOracle:
    """One connection, as its client sees it. Where the schema files are missing nothing is checked (see `spec_dir`)."""

    def __init__(self) -> None:
        self._asked: dict[object, tuple[str, str | None]] = {}
        self._agreed: str | None = None

    def sent(self, message: Message) -> None:
        """Note which method, in which revision, the reply will be about."""
        if not isinstance(message.get("method"), str) or not isinstance(message.get("id"), int | str):
            return
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        version = meta.get(PROTOCOL_VERSION) if isinstance(meta, dict) else None
        self._asked[message["id"]] = (message["method"], version)

    def heard(self, message: Message | list[Message]) -> None:
        """Raises `ValidationError` for a message that its revision does not know in that form."""
        if not SPEC_DIR.is_dir():
            return
        match message:
            case list():
                named = [{"id": 0, **each} for each in message]
                validator(SPEC_DIR, self._version, "JSONRPCBatchResponse").validate(named)
                for each in message:
                    self.heard(each)
            case {"result": result, "id": request_id}:
                self._heard_result(message, result, *self._asked.get(request_id, ("", None)))
            case {"error": _}:
                # the older files know no error without an id; newer ones leave it out where the request had none to read
                name = general_definition(self._version, message)
                validator(SPEC_DIR, self._version, name).validate({"id": 0, **message})
            case {"method": method} if is_extension(self._version, method):
                extension_validator(SPEC_DIR, extension_methods()[method]).validate(message)
            case {"method": method}:
                name = request_definitions(SPEC_DIR, self._version)[method]
                validator(SPEC_DIR, self._version, name).validate(message)

    @property
    def _version(self) -> str:
        return self._agreed or MODERN

    def _heard_result(self, message: Message, result: Message, method: str, version: str | None) -> None:
        if method == "initialize":
            self._agreed = result["protocolVersion"]
        handshake = self._agreed or NEWEST_LEGACY
        spoken = version if version in VERSIONS else handshake
        validator(SPEC_DIR, spoken, general_definition(spoken, message)).validate(message)
        requests = request_definitions(SPEC_DIR, spoken)
        if is_extension(spoken, method):
            name = extension_methods()[method].replace("Request", "Result")
            extension_validator(SPEC_DIR, name).validate(result)
        elif result.get("resultType") == "task":
            extension_validator(SPEC_DIR, "CreateTaskResult").validate(result)
        elif method in requests:
            name = result_definition(SPEC_DIR, spoken, requests[method], result)
            validator(SPEC_DIR, spoken, name).validate(result)


def result_definition(spec_dir: Path, version: str, request: str, result: Message) -> str:
    if result.get("resultType") == "input_required":
        return "InputRequiredResult"
    if version == "2025-11-25" and "task" in result:
        return "CreateTaskResult"
    name = request.replace("Request", "Result")
    return name if name in definitions(spec_dir, version) else "EmptyResult"


def general_definition(version: str, message: Message) -> str:
    match message:
        case {"method": _, "id": _}:
            return "JSONRPCRequest"
        case {"method": _}:
            return "JSONRPCNotification"
        case {"result": _}:
            return "JSONRPCResultResponse" if version >= "2025-11-25" else "JSONRPCResponse"
        case _:
            return "JSONRPCErrorResponse" if version >= "2025-11-25" else "JSONRPCError"
