"""Renew the record of the conversations through proxies, `conversations.json`. Look at its difference before it is committed.

PYTHONPATH=tests:tests/transports python tests/relay/record_conversations.py
"""

from __future__ import annotations

import trio
from proxied_conversations import conversations
from recorded import RECORD, packed, played


def main() -> None:
    recorded = {each.title: trio.run(played, each) for each in conversations()}
    RECORD.write_text(packed(recorded))
    print(f"{len(recorded)} conversations in {RECORD.stat().st_size} bytes of {RECORD}")


if __name__ == "__main__":
    main()
