"""Received messages to models and models to bytes, one codec for each revision."""

from .reading import CODECS, Codec, codec_for

__all__ = ["CODECS", "Codec", "codec_for"]
