"""A server of one era that answers each message by a table: what it offers is what the recorded conversations are about.

It is written line by line, and not with this project's server, so that it sends what other servers send: members that no revision
has, errors with any data, requests that no table knows. A tool's name says what it does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import trio
from relaying import DISCOVERED, FORM, PROMPT, TOOL, Json, Line
from wire_terms import (
    LEGACY_REVISIONS,
    MODERN,
    NEWEST_LEGACY,
    RELATED_TASK,
    SERVER_INFO,
    SUBSCRIPTION_ID,
    TASKS_EXTENSION,
)

STATE: Final = "state of the far server"
WHEN: Final = "2026-01-01T00:00:00Z"
INFO: Final[Json] = {"name": "far", "version": "7", "title": "Far", "x-info": 1}
URL: Final[Json] = {"mode": "url", "message": "Open it", "url": "https://example.com/x", "elicitationId": "e-1"}

CAPABILITIES: Final[Json] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "logging": {},
    "completions": {},
    "experimental": {"x-own": {"a": 1}},
}
LEGACY_TASKS: Final[Json] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}

QUESTIONS: Final[dict[str, list[tuple[str, Json]]]] = {
    "form": [("elicitation/create", {**FORM, "x-form": [1]})],
    "form_of_a_mode": [("elicitation/create", {**FORM, "mode": "form"})],
    "url": [("elicitation/create", URL)],
    "sample": [("sampling/createMessage", {**PROMPT, "temperature": 0.5, "x-sample": {}})],
    "sample_tools": [("sampling/createMessage", {**PROMPT, "tools": [TOOL], "toolChoice": {"mode": "auto"}})],
    "roots": [("roots/list", {})],
    "form_and_sample": [("elicitation/create", FORM), ("sampling/createMessage", PROMPT)],
    "two_forms": [("elicitation/create", FORM), ("elicitation/create", {**FORM, "message": "And yours?"})],
}
"""What a tool asks, by its name."""

RESULTS: Final[dict[str, Json]] = {
    "image": {
        "content": [{"type": "image", "data": "aGk=", "mimeType": "image/png", "annotations": {"priority": 0.5}}]
    },
    "audio": {"content": [{"type": "audio", "data": "aGk=", "mimeType": "audio/wav", "_meta": {"m": 1}}]},
    "link": {"content": [{"type": "resource_link", "uri": "note://one", "name": "one", "size": 3, "x": None}]},
    "embedded": {"content": [{"type": "resource", "resource": {"uri": "note://one", "text": "one", "x": 1}}]},
    "structured": {"content": [], "structuredContent": {"b": 1.5, "a": [None, True, {"c": "é"}]}},
    "failed": {"content": [{"type": "text", "text": "no"}], "isError": True, "_meta": {"x/y": 1}},
    "odd": {
        "content": [{"type": "text", "text": "odd", "x-block": {"a": []}}],
        "x-result": {"a": None},
        "_meta": {"x": {}},
    },
    "empty": {"content": []},
}
"""What a tool answers that asks and does nothing, by its name."""

ERRORS: Final[dict[str, Json]] = {
    "error_bare": {"code": 1, "message": "bare"},
    "error_data": {"code": -32000, "message": "with data", "data": {"a": [1, {"b": None}]}},
    "error_null": {"code": -32603, "message": "null data", "data": None},
    "error_text": {"code": -32602, "message": "é\n", "data": "text"},
    "error_list": {"code": 2**31, "message": "", "data": [0, 1.5]},
    "error_unknown": {"code": -32601, "message": "no such method"},
    "error_resource": {"code": -32002, "message": "not found", "data": {"uri": "note://none"}},
}
"""The error that a tool answers with, by its name."""

PAGES: Final[dict[str, Json]] = {
    "tools/list": {
        "tools": [
            {**TOOL, "title": "Look", "annotations": {"readOnlyHint": True, "x": 1}, "x-tool": {"a": 1.5}},
            {
                "name": "job",
                "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}},
                "_meta": {"m": 1},
            },
        ]
    },
    "prompts/list": {"prompts": [{"name": "greet", "arguments": [{"name": "who", "required": True}], "x": []}]},
    "resources/list": {"resources": [{"uri": "note://one", "name": "one", "mimeType": "text/x-note", "x": {}}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "note://of/{day}", "name": "of", "x": 0}]},
}


class FarWire:
    """The server. It may have several connections.

    Attributes:
        received: the messages of all connections.
        holds: set when a call of `hold` has come.
        cancelled: set when that is cancelled.
    """

    def __init__(self, era: str) -> None:
        self.era = era
        self.received: list[Any] = []
        self.holds = trio.Event()
        self.cancelled = trio.Event()
        self.answered = trio.Event()
        """Set when a request without a call was answered."""

    async def serve(self, line: Line) -> None:
        """Answer what comes over one connection until that ends."""
        await Speaking(self, line).run()


class Speaking:
    """One connection."""

    def __init__(self, far: FarWire, line: Line) -> None:
        self.far, self.line = far, line
        self.modern = far.era == "modern"
        self._writing = trio.Lock()
        self._ids = itertools.count(1)
        self._asked: dict[object, trio.MemorySendChannel[Json]] = {}
        self._listening: list[object] = []
        self._cancels: dict[object, trio.CancelScope] = {}
        self._tasks: dict[str, Json] = {}

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    got = await self.line.next()
                except EOFError:
                    break
                self.far.received.append(got)
                for message in got if isinstance(got, list) else [got]:
                    if "method" not in message:
                        self._take_answer(message)
                    elif "id" in message:
                        nursery.start_soon(self._answer, message)
                    else:
                        await self._note(message)
            nursery.cancel_scope.cancel()

    def _take_answer(self, message: Json) -> None:
        waiting = self._asked.pop(message["id"], None)
        if waiting is not None:
            waiting.send_nowait(message)
        self.far.answered.set()

    async def _note(self, message: Json) -> None:
        method, params = message["method"], message.get("params", {})
        if method == "notifications/cancelled":
            scope = self._cancels.pop(params.get("requestId"), None)
            if scope is not None:
                scope.cancel()
        elif method == "notifications/x-call":
            await self.notify("notifications/x-echo", params)

    async def _answer(self, request: Json) -> None:
        with trio.CancelScope() as scope:
            self._cancels[request["id"]] = scope
            members = await self._answers(request, request.get("params", {}))
            self._cancels.pop(request["id"], None)
            await self.send({"id": request["id"], **members})

    async def _answers(self, request: Json, params: Json) -> Json:
        method = request["method"]
        legacy: dict[str, Callable[[Json], Json]] = {"initialize": self._initialize}
        if method == "server/discover" and self.modern:
            return self.result(self._discovered())
        if method in legacy and not self.modern:
            return {"result": legacy[method](params)}
        if method == "initialize":
            return {"error": {"code": -32022, "message": "too old", "data": {"supported": [MODERN], "requested": "x"}}}
        if method in PAGES:
            return self._page(method, params)
        match method:
            case "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" if not self.modern:
                return {"result": {}}
            case "tools/call":
                return await self._call(request, params)
            case "prompts/get":
                text = f"Greet {params.get('arguments', {}).get('who')}."
                shown = [{"role": "user", "content": {"type": "text", "text": text}, "x": 1}]
                return self.result({"description": "d", "messages": shown, "x": 1})
            case "resources/read":
                return self._read(params)
            case "completion/complete":
                values = [f"{params['argument']['value']}ob"]
                return self.result({"completion": {"values": values, "total": 1, "hasMore": False, "x": 1}})
            case "subscriptions/listen" if self.modern:
                return await self._listen(request, params)
            case "x/echo":
                return self.result({"echo": {k: v for k, v in params.items() if k != "_meta"}, "x-kept": [1.5, None]})
            case "x/hold":
                return await self._hold()
            case "x/fail":
                return {"error": {"code": 7, "message": "x", "data": {"x": None}}}
        if method.startswith("tasks/"):
            return self._about_task(method, params)
        return {"error": {"code": -32601, "message": f"what is {method}?"}}

    # what it is

    def _initialize(self, params: Json) -> Json:
        version = params["protocolVersion"]
        capabilities = {**CAPABILITIES, "x-unknown": {"a": 1}}
        if version == NEWEST_LEGACY:
            capabilities["tasks"] = LEGACY_TASKS
        chosen = version if version in LEGACY_REVISIONS else NEWEST_LEGACY
        return {"protocolVersion": chosen, "capabilities": capabilities, "serverInfo": INFO, "instructions": "Look."}

    def _discovered(self) -> Json:
        capabilities = {**CAPABILITIES, "extensions": {TASKS_EXTENSION: {}}, "x-unknown": {"a": 1}}
        return {**DISCOVERED, "capabilities": capabilities, "instructions": "Look.", "x-found": 1}

    def result(self, members: Json) -> Json:
        if not self.modern:
            return {"result": members}
        meta = {**members.get("_meta", {}), SERVER_INFO: INFO}
        return {"result": {"resultType": "complete", **members, "_meta": meta}}

    def _page(self, method: str, params: Json) -> Json:
        page = {**PAGES[method], "x-page": 1}
        if "cursor" not in params:
            page["nextCursor"] = "second"
        if self.modern:
            page |= {"ttlMs": 0, "cacheScope": "private"}
        return self.result(page)

    def _read(self, params: Json) -> Json:
        cached = {"ttlMs": 0, "cacheScope": "private"} if self.modern else {}
        match params["uri"]:
            case "note://one":
                text = {"uri": "note://one", "text": "one", "mimeType": "text/x-note", "_meta": {"m": 1}, "x": 1}
                return self.result({"contents": [text], "x": 1, **cached})
            case "note://blob":
                return self.result({"contents": [{"uri": "note://blob", "blob": "aGk="}], **cached})
        code = -32602 if self.modern else -32002
        return {"error": {"code": code, "message": "no such note", "data": {"uri": params["uri"]}}}

    # calls

    async def _call(self, request: Json, params: Json) -> Json:
        name, arguments = params["name"], params.get("arguments", {})
        token = params.get("_meta", {}).get("progressToken")
        if "task" in params and not self.modern:
            return {"result": {"task": self._create_task(), "_meta": {"x": 1}}}
        if name == "job" and self.modern:
            return {"result": {"resultType": "task", **self._create_task(), "_meta": {SERVER_INFO: INFO}}}
        if name in QUESTIONS:
            return await self._ask(params, QUESTIONS[name])
        if name in RESULTS:
            return self.result(RESULTS[name])
        if name in ERRORS:
            return {"error": ERRORS[name]}
        match name:
            case "progress":
                for number in range(arguments.get("count", 3)):
                    if token is not None:
                        more = {"total": 3, "message": f"step {number}"} if number else {}
                        report = {"progressToken": token, "progress": number + 0.5, "x-progress": [number], **more}
                        report["_meta"] = {"m": 1, RELATED_TASK: {"taskId": "t"}}
                        await self.notify("notifications/progress", report)
            case "log":
                for level in arguments["levels"]:
                    entry = {"level": level, "logger": "far", "data": {"level": level, "x": None}, "x-log": 1}
                    await self.notify("notifications/message", entry)
            case "change":
                for kind in arguments["kinds"]:
                    await self._change(kind)
            case "note":
                await self.notify("notifications/x-note", {"a": [1.5, None], "b": None, "_meta": {"m": 1}})
            case "ask_unknown":
                return await self._ask(params, [("x/ask", {"a": 1, "_meta": {"m": 1}})])
            case "hold":
                return await self._hold()
            case "large":
                text = "".join(f"{number:>7} é" for number in range(arguments["size"] // 10))
                return self.result({"content": [{"type": "text", "text": text}], "structuredContent": {"text": text}})
        shown = {k: v for k, v in params.items() if k not in ("_meta", "requestState", "inputResponses")}
        return self.result({"content": [{"type": "text", "text": name}], "structuredContent": {"got": shown}})

    async def _hold(self) -> Json:
        self.far.holds.set()
        try:
            await trio.sleep_forever()
        finally:
            self.far.cancelled.set()
        raise AssertionError("it is cancelled")

    async def _ask(self, params: Json, questions: list[tuple[str, Json]]) -> Json:
        if self.modern:
            given = params.get("inputResponses")
            if given is None:
                asked = {f"q{number}": {"method": m, "params": p} for number, (m, p) in enumerate(questions)}
                interim = {"resultType": "input_required", "inputRequests": asked, "requestState": STATE, "x-round": 1}
                return {"result": {**interim, "_meta": {SERVER_INFO: INFO}}}
            answers = {"given": given, "state": params.get("requestState")}
        else:
            answers = {"given": [await self.request(method, asked) for method, asked in questions]}
        return self.result({"content": [], "structuredContent": answers})

    async def request(self, method: str, params: Json) -> Json:
        """Ask the client, and return its answer without the ids."""
        request_id = f"far-{next(self._ids)}"
        sends, receives = trio.open_memory_channel[Json](1)
        self._asked[request_id] = sends
        await self.send({"id": request_id, "method": method, "params": params})
        answer = await receives.receive()
        return {name: value for name, value in answer.items() if name in ("result", "error")}

    async def notify(self, method: str, params: Json) -> None:
        await self.send({"method": method, "params": params})

    async def send(self, message: Json) -> None:
        async with self._writing:
            await self.line.send({"jsonrpc": "2.0", **message})

    async def _change(self, kind: str) -> None:
        method = "notifications/resources/updated" if kind == "updated" else f"notifications/{kind}/list_changed"
        params: Json = {"uri": "note://one"} if kind == "updated" else {}
        for listener in self._listening if self.modern else [None]:
            meta = {"_meta": {SUBSCRIPTION_ID: listener}} if self.modern else {}
            await self.notify(method, {**params, **meta})

    # subscriptions and tasks

    async def _listen(self, request: Json, params: Json) -> Json:
        self._listening.append(request["id"])
        meta = {SUBSCRIPTION_ID: request["id"]}
        agreed = {"notifications": params["notifications"], "_meta": meta}
        await self.notify("notifications/subscriptions/acknowledged", agreed)
        try:
            await trio.sleep_forever()
        finally:
            self._listening.remove(request["id"])
        raise AssertionError("it is cancelled")

    def _create_task(self) -> Json:
        task: Json = {"taskId": f"task-{len(self._tasks) + 1}", "status": "working", "createdAt": WHEN}
        task |= {"lastUpdatedAt": WHEN, "statusMessage": "begun"}
        task |= {"ttlMs": 60000, "pollIntervalMs": 5} if self.modern else {"ttl": 60000, "pollInterval": 5}
        self._tasks[task["taskId"]] = task
        return task

    def _about_task(self, method: str, params: Json) -> Json:
        if method == "tasks/list":
            return self.result({"tasks": list(self._tasks.values()), "x": 1})
        task = self._tasks.get(params.get("taskId", ""))
        if task is None:
            return {"error": {"code": -32602, "message": "no such task"}}
        outcome = {"content": [{"type": "text", "text": "done"}], "x": 1}
        match method:
            case "tasks/get" if self.modern and task["status"] == "working":
                task["status"] = "completed"
                return self.result({**task, "result": {"resultType": "complete", **outcome}})
            case "tasks/result":
                return self.result(
                    {**outcome, "_meta": {"io.modelcontextprotocol/related-task": {"taskId": task["taskId"]}}}
                )
            case "tasks/cancel":
                task["status"] = "cancelled"
                return self.result({} if self.modern else task)
            case "tasks/update":
                return self.result({})
        return self.result(task)
