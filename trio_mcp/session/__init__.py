"""The session: where the protocol and the actors meet. The only package that knows both."""

from .batch import OpenBatch
from .calls.call import Call
from .calls.plan import CallPort, Plan, Question, RequestCheck, RequestFacts, ResumeMode, Route
from .client import ClientSession, RequestHandler
from .envelope import ANONYMOUS, Envelope, Peer
from .options import ServiceOptions
from .pump import serve_channel
from .replies import ReplyTarget
from .server import ServerSession
from .service import Service, open_service
from .statistics import ReplyStatistics, ServiceStatistics
from .tokens import TokenEstimate, estimate_tokens, used_tokens
from .transport import ChannelServer, Transport, check_options, find_transport

__all__ = [
    "ANONYMOUS",
    "Call",
    "CallPort",
    "ChannelServer",
    "ClientSession",
    "Envelope",
    "OpenBatch",
    "Peer",
    "Plan",
    "Question",
    "ReplyStatistics",
    "ReplyTarget",
    "RequestCheck",
    "RequestFacts",
    "RequestHandler",
    "ResumeMode",
    "Route",
    "ServerSession",
    "Service",
    "ServiceOptions",
    "ServiceStatistics",
    "TokenEstimate",
    "Transport",
    "check_options",
    "estimate_tokens",
    "find_transport",
    "open_service",
    "serve_channel",
    "used_tokens",
]
