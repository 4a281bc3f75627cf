"""The signature and the annotations of a function, also if a name in them is not defined at run time.

Before Python 3.14, an annotation is a value or, with `from __future__ import annotations`, a string. From 3.14 on it is computed
when it is first read (PEP 649), so `inspect.signature` and `__annotations__` raise `NameError` for a name that was imported for
type checkers only. The caller decides whether such a name matters.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping

if sys.version_info >= (3, 14):
    from annotationlib import Format, get_annotations


def signature_of(function: Callable[..., object]) -> inspect.Signature:
    """Return the signature of a function, in which annotations may be unresolved.

    Raises:
        TypeError, ValueError: as of `inspect.signature`, if there is none.
    """
    if sys.version_info >= (3, 14):
        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def written_annotations(function: object) -> Mapping[str, object]:
    """Return the annotations of a function by parameter: each a value, or a string or `ForwardRef` that is unresolved."""
    if sys.version_info >= (3, 14):
        return get_annotations(function, format=Format.FORWARDREF) if hasattr(function, "__annotate__") else {}
    annotations: Mapping[str, object] = getattr(function, "__annotations__", {})
    return annotations


def annotation_text(function: object, name: str) -> str:
    """Return an annotation as errors show it; `written_annotations` has to have it."""
    if sys.version_info >= (3, 14):
        return repr(get_annotations(function, format=Format.STRING)[name])
    return repr(written_annotations(function)[name])
