"""The session: where the protocol and the actors meet. The only room that knows both."""

from .backchannel import Backchannel, Question
from .batch import OpenBatch
from .call import Call
from .channel import AnyChannel, MessageChannel, PlainChannel, as_message_channel
from .client import ClientSession, RequestHandler
from .envelope import ANONYMOUS, Envelope, Peer, Received, Sent
from .leg import Leg, Listener, RequestFacts
from .pump import serve_channel
from .replay import Resume
from .request_session import RequestSession, open_request_session
from .server import ServerSession
from .service import Guard, Plan, Route, Service, ServiceOptions, open_service
from .statistics import ReplyStatistics, ServiceStatistics
from .tokens import TokenEstimate, estimate_tokens, used_tokens
from .transport import ChannelServer, Transport, check_options, find_transport

__all__ = [
    "ANONYMOUS",
    "AnyChannel",
    "Backchannel",
    "Call",
    "ChannelServer",
    "ClientSession",
    "Envelope",
    "Guard",
    "Leg",
    "Listener",
    "MessageChannel",
    "OpenBatch",
    "Peer",
    "PlainChannel",
    "Plan",
    "Question",
    "Received",
    "ReplyStatistics",
    "RequestFacts",
    "RequestHandler",
    "RequestSession",
    "Resume",
    "Route",
    "Sent",
    "ServerSession",
    "Service",
    "ServiceOptions",
    "ServiceStatistics",
    "TokenEstimate",
    "Transport",
    "as_message_channel",
    "check_options",
    "estimate_tokens",
    "find_transport",
    "open_request_session",
    "open_service",
    "serve_channel",
    "used_tokens",
]
