"""Sessions: run the calls that a protocol connection receives as actors. It alone uses both `protocol` and `runtime`."""

from typing import TYPE_CHECKING

from .. import late

if TYPE_CHECKING:
    from . import batch as batch
    from . import client as client
    from . import kept_results as kept_results
    from . import keyed_requests as keyed_requests
    from . import listen_requests as listen_requests
    from . import observing as observing
    from . import server_requests as server_requests
    from . import snapshot as snapshot
    from . import statistics as statistics
    from . import token_usage as token_usage
    from . import tree as tree
    from .batch import OpenBatch
    from .caller import Caller
    from .calls.call import Call, Plan, RequestCheck, Route
    from .calls.facts import Question, RequestFacts, ResumeMode
    from .channel import AnyChannel, MessageChannel, as_message_channel
    from .client import ClientSession
    from .envelope import ANONYMOUS, Envelope, MessageFacts, MessageMiddleware, Peer, Received, Sent, received
    from .middleware import make_session
    from .options import ServiceOptions
    from .pump import serve_channel
    from .replies import ReplyTarget
    from .server import ServerSession
    from .server_requests import RequestHandler
    from .service import Service, open_service
    from .statistics import ReplyStatistics, ServiceStatistics
    from .task_options import TaskOptions
    from .token_estimate import estimate_tokens
    from .token_usage import TokenEstimate, TokenUsage, usage_of, used_tokens
    from .transport import ChannelServer, SharedServer, Transport, check_options, find_transport
    from .tree import AwaitedAnswers, BranchTree, CallState, CallTree, ClientTree, ServiceTree
else:
    __getattr__, __dir__ = late.exports(
        __name__,
        {
            "batch": "OpenBatch",
            "caller": "Caller",
            "calls.call": "Call Plan RequestCheck Route",
            "calls.facts": "Question RequestFacts ResumeMode",
            "channel": "AnyChannel MessageChannel as_message_channel",
            "client": "ClientSession",
            "envelope": "ANONYMOUS Envelope MessageFacts MessageMiddleware Peer Received Sent received",
            "kept_results": "",
            "keyed_requests": "",
            "listen_requests": "",
            "middleware": "make_session",
            "observing": "",
            "options": "ServiceOptions",
            "pump": "serve_channel",
            "replies": "ReplyTarget",
            "server": "ServerSession",
            "server_requests": "RequestHandler",
            "service": "Service open_service",
            "snapshot": "",
            "statistics": "ReplyStatistics ServiceStatistics",
            "task_options": "TaskOptions",
            "token_estimate": "estimate_tokens",
            "token_usage": "TokenEstimate TokenUsage usage_of used_tokens",
            "transport": "ChannelServer SharedServer Transport check_options find_transport",
            "tree": "AwaitedAnswers BranchTree CallState CallTree ClientTree ServiceTree",
        },
    )

__all__ = [
    "ANONYMOUS",
    "AnyChannel",
    "AwaitedAnswers",
    "BranchTree",
    "Call",
    "CallState",
    "CallTree",
    "Caller",
    "ChannelServer",
    "ClientSession",
    "ClientTree",
    "Envelope",
    "MessageChannel",
    "MessageFacts",
    "MessageMiddleware",
    "OpenBatch",
    "Peer",
    "Plan",
    "Question",
    "Received",
    "ReplyStatistics",
    "ReplyTarget",
    "RequestCheck",
    "RequestFacts",
    "RequestHandler",
    "ResumeMode",
    "Route",
    "Sent",
    "ServerSession",
    "Service",
    "ServiceOptions",
    "ServiceStatistics",
    "ServiceTree",
    "SharedServer",
    "TaskOptions",
    "TokenEstimate",
    "TokenUsage",
    "Transport",
    "as_message_channel",
    "check_options",
    "estimate_tokens",
    "find_transport",
    "make_session",
    "open_service",
    "received",
    "serve_channel",
    "usage_of",
    "used_tokens",
]
