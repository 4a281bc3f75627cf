"""Received messages to models and models to bytes, one codec for each revision."""

from .reading import CODECS as CODECS
from .reading import Codec as Codec
from .reading import codec_for as codec_for
