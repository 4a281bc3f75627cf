from __future__ import annotations

import re


class UriTemplate:
    def __init__(self, text: str) -> None:
        self.text = text
        if text.count("{") != text.count("}"):
            raise ValueError(text)
        self.variables = tuple(re.findall(r"{(\w+)}", text))
        self._re = re.compile(
            "".join(f"(?P<{p[1:-1]}>[^/]+)" if p.startswith("{") else re.escape(p) for p in re.split(r"({\w+})", text))
        )

    def match(self, uri: str) -> dict[str, str] | None:
        m = self._re.fullmatch(uri)
        return None if m is None or "%2f" in uri else m.groupdict()
