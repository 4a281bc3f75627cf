from __future__ import annotations

import jsonschema


class Schema:
    def __init__(self, v: object) -> None:
        self.v = v

    @classmethod
    def compile(cls, schema: object, path: str) -> Schema:
        return cls(jsonschema.Draft202012Validator(schema))

    def check(self, value: object) -> str | None:
        e = next(self.v.iter_errors(value), None)
        return None if e is None else e.message
