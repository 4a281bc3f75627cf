"""Models to bytes and JSON to models, one codec for each revision."""

from .codec import Codec, codec_for

__all__ = ["Codec", "codec_for"]
