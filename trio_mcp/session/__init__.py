"""The session: where the protocol and the actors meet. The only room that knows both."""

from .backchannel import Backchannel, Question
from .batch import OpenBatch
from .call import Call
from .client import ClientSession, RequestHandler
from .envelope import ANONYMOUS, Envelope, Peer
from .leg import Leg, Listener, RequestFacts
from .pump import serve_channel
from .replay import Resume
from .server import ServerSession
from .service import Guard, Plan, Route, Service, ServiceOptions, open_service
from .statistics import ReplyStatistics, ServiceStatistics
from .tokens import TokenEstimate, estimate_tokens, used_tokens
from .transport import ChannelServer, Transport, check_options, find_transport

__all__ = [
    "ANONYMOUS",
    "Backchannel",
    "Call",
    "ChannelServer",
    "ClientSession",
    "Envelope",
    "Guard",
    "Leg",
    "Listener",
    "OpenBatch",
    "Peer",
    "Plan",
    "Question",
    "ReplyStatistics",
    "RequestFacts",
    "RequestHandler",
    "Resume",
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
