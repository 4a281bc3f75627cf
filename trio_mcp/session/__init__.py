"""Sessions: run the calls that a protocol connection receives as actors. It alone uses both `protocol` and `runtime`."""

from typing import TYPE_CHECKING

from ..base import late

if TYPE_CHECKING:
    from ..protocol.sealing.request_state import KeyRing as KeyRing
    from ..runtime import Limits as Limits, MemoryBudget as MemoryBudget
    from . import (
        batch as batch,
        changes as changes,
        client as client,
        idempotency as idempotency,
        kept_results as kept_results,
        keyed_calls as keyed_calls,
        listen_requests as listen_requests,
        observing as observing,
        recovery as recovery,
        rejoining as rejoining,
        server_requests as server_requests,
        token_usage as token_usage,
        tree as tree,
    )
    from .batch import OpenBatch as OpenBatch
    from .calls.call import Call as Call, Plan as Plan, RequestCheck as RequestCheck, Route as Route
    from .calls.facts import Question as Question, RequestFacts as RequestFacts, ResumeMode as ResumeMode
    from .channel import (
        AnyChannel as AnyChannel,
        MessageChannel as MessageChannel,
        as_message_channel as as_message_channel,
    )
    from .client import ClientSession as ClientSession
    from .envelope import (
        ANONYMOUS as ANONYMOUS,
        Caller as Caller,
        Envelope as Envelope,
        MessageFacts as MessageFacts,
        MessageMiddleware as MessageMiddleware,
        Peer as Peer,
        Received as Received,
        Sent as Sent,
        received as received,
    )
    from .middleware import make_session as make_session
    from .observing import ReplyStatistics as ReplyStatistics, ServiceStatistics as ServiceStatistics
    from .options import (
        ServiceOptions as ServiceOptions,
        TaskOptions as TaskOptions,
        estimate_tokens as estimate_tokens,
    )
    from .pump import serve_channel as serve_channel
    from .replies import ReplyTarget as ReplyTarget
    from .server import ServerSession as ServerSession
    from .server_requests import RequestHandler as RequestHandler
    from .service import Service as Service, open_service as open_service
    from .token_usage import (
        TokenEstimate as TokenEstimate,
        TokenUsage as TokenUsage,
        usage_of as usage_of,
        used_tokens as used_tokens,
    )
    from .transport import (
        ChannelServer as ChannelServer,
        SharedServer as SharedServer,
        Transport as Transport,
        check_options as check_options,
        find_transport as find_transport,
    )
    from .tree import (
        AwaitedAnswers as AwaitedAnswers,
        BranchTree as BranchTree,
        CallState as CallState,
        CallTree as CallTree,
        ClientTree as ClientTree,
        ServiceTree as ServiceTree,
    )
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "batch": "OpenBatch",
            "calls.call": "Call Plan RequestCheck Route",
            "calls.facts": "Question RequestFacts ResumeMode",
            "changes": "",
            "channel": "AnyChannel MessageChannel as_message_channel",
            "client": "ClientSession",
            "envelope": ("ANONYMOUS Caller Envelope MessageFacts MessageMiddleware Peer Received Sent received"),
            "idempotency": "",
            "kept_results": "",
            "keyed_calls": "",
            "listen_requests": "",
            "middleware": "make_session",
            "observing": "ReplyStatistics ServiceStatistics",
            "options": "ServiceOptions TaskOptions estimate_tokens",
            "pump": "serve_channel",
            "recovery": "",
            "rejoining": "",
            "replies": "ReplyTarget",
            "server": "ServerSession",
            "server_requests": "RequestHandler",
            "service": "Service open_service",
            "token_usage": "TokenEstimate TokenUsage usage_of used_tokens",
            "transport": "ChannelServer SharedServer Transport check_options find_transport",
            "trio_mcp.protocol.sealing.request_state": "KeyRing",
            "trio_mcp.runtime": "Limits MemoryBudget",
            "tree": "AwaitedAnswers BranchTree CallState CallTree ClientTree ServiceTree",
        },
        in_calls="batch calls idempotency kept_results keyed_calls listen_requests recovery tasks token_usage",
    )
