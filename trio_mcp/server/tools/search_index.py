"""Ranking of tools by the words of a query: BM25 over the names, descriptions and parameters of the tools.

The index belongs to one snapshot of the catalog. A new one takes over the words of the tools that are in both, so that a change
costs what has changed.

    update_pet_name      update pet name                 each word of a name counts as three
    "Rename a pet."      rename a pet
    query "pets"         pet                             both sides drop the plural
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, cast

from ...types import JsonObject, JsonValue, Tool as ToolModel
from ..tool_options import TAGS_META_KEY

MAX_TERMS: Final = 32
"""The different words of a query that count; each costs a step for every tool that has it."""
MAX_TEXT: Final = 4000
"""Characters of a description, or of the names of parameters, in which words are looked for."""
NAME_WEIGHT: Final = 3
SATURATION: Final = 1.2
"""How much it matters that a word occurs again (k1 of BM25)."""
LENGTH: Final = 0.6
"""How much it matters that a text is longer than the others (b of BM25)."""

CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
WORD: Final = re.compile(r"[^\W_]+")

FREQUENT: Final = frozenset(
    {"a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "in", "into", "is", "it", "its", "of", "on", "or"}
    | {"some", "that", "the", "this", "to", "with"}
)
"""English words that say nothing about a tool."""

Words = Counter[str]


def words_of(text: str) -> Iterator[str]:
    """Yield the words of a text in lower case, without a plural `s`, and without the most frequent ones.

    Those in `camelCase` and `snake_case` are apart.
    """
    for found in WORD.findall(CAMEL.sub(" ", text)):
        word = found.lower()
        if word in FREQUENT:
            continue
        if len(word) > 4 and word.endswith("ies"):
            yield f"{word[:-3]}y"
        elif len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
            yield word[:-1]
        else:
            yield word


def words_of_tool(tool: ToolModel) -> Words:
    """Return the words by which a tool is found, and how much each counts."""
    words: Words = Counter()
    for word in words_of(f"{tool.name} {tool.title or ''}"):
        words[word] += NAME_WEIGHT
    words.update(words_of((tool.description or "")[:MAX_TEXT]))
    words.update(words_of(" ".join(parameter_texts(tool.input_schema))[:MAX_TEXT]))
    tags = (tool.meta or {}).get(TAGS_META_KEY)
    if isinstance(tags, list):
        words.update(words_of(" ".join(map(str, tags))))
    return words


def parameter_texts(schema: JsonObject) -> Iterator[str]:
    """Yield the names of the parameters of a tool, with their descriptions."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    for name, each in cast("Mapping[str, JsonValue]", properties).items():
        yield name
        if isinstance(each, dict) and isinstance(description := each.get("description"), str):
            yield description


class SearchIndex:
    """The tools of one snapshot, and the words by which they are found.

    Args:
        tools: what lists show of them; the index counts them in this order.
        earlier: the words of tools that an earlier index has read.
    """

    def __init__(self, tools: Sequence[ToolModel], earlier: Mapping[int, tuple[ToolModel, Words]]) -> None:
        # By id, because a model cannot be hashed; the model is kept beside it, so that no other gets the same id.
        self.words: dict[int, tuple[ToolModel, Words]] = {}
        self._numbers = {tool.name: number for number, tool in enumerate(tools)}
        self._postings: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self._lengths: list[int] = []
        for number, tool in enumerate(tools):
            known = earlier.get(id(tool))
            words = words_of_tool(tool) if known is None else known[1]
            self.words[id(tool)] = (tool, words)
            self._lengths.append(words.total())
            for word, count in words.items():
                self._postings[word].append((number, count))
        self._average = sum(self._lengths) / max(1, len(tools))

    def ranked(self, query: str) -> list[int]:
        """Return the numbers of the tools that have a word of the query, the best first, and before it one of that name."""
        scores: defaultdict[int, float] = defaultdict(float)
        for term in islice(dict.fromkeys(words_of(query)), MAX_TERMS):
            postings = self._postings.get(term, ())
            rarity = math.log(1 + (len(self._lengths) - len(postings) + 0.5) / (len(postings) + 0.5))
            for number, count in postings:
                relative = 1 - LENGTH + LENGTH * self._lengths[number] / self._average
                scores[number] += rarity * count * (SATURATION + 1) / (count + SATURATION * relative)
        named = self._numbers.get(query.strip())
        if named is not None:
            scores[named] = math.inf
        return sorted(scores, key=lambda number: (-scores[number], number))
