"""Models to bytes and JSON to models, one codec for each revision."""

from .codec import CODECS, Codec, codec_for

__all__ = ["CODECS", "Codec", "codec_for"]
