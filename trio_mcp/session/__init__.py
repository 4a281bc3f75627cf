"""The session: where the protocol and the actors meet. The only package that knows both."""

from .batch import OpenBatch as OpenBatch
from .calls.call import Call as Call, Plan as Plan, RequestCheck as RequestCheck, Route as Route
from .calls.facts import Question as Question, RequestFacts as RequestFacts, ResumeMode as ResumeMode
from .channel import (
    AnyChannel as AnyChannel,
    MessageChannel as MessageChannel,
    PlainChannel as PlainChannel,
    as_message_channel as as_message_channel,
)
from .client import ClientSession as ClientSession, RequestHandler as RequestHandler
from .envelope import ANONYMOUS as ANONYMOUS, Envelope as Envelope, Peer as Peer, Received as Received, Sent as Sent
from .options import ServiceOptions as ServiceOptions
from .pump import serve_channel as serve_channel
from .replies import ReplyTarget as ReplyTarget
from .request_session import RequestSession as RequestSession, open_request_session as open_request_session
from .server import ServerSession as ServerSession
from .service import Service as Service, open_service as open_service
from .statistics import ReplyStatistics as ReplyStatistics, ServiceStatistics as ServiceStatistics
from .tokens import TokenEstimate as TokenEstimate, estimate_tokens as estimate_tokens, used_tokens as used_tokens
from .transport import (
    ChannelServer as ChannelServer,
    Transport as Transport,
    check_options as check_options,
    find_transport as find_transport,
)
