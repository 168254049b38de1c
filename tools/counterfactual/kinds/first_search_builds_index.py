"""The search index is not built at the start but in the first search, and all who call then wait for it.

cites: Neverdecel/CodeRAG#61
state: first
sdks: mcp1 mcp2 fastmcp3 fastmcp4
transports: http
names: CORPUS INDEX index_corpus current_index SEARCH COUNT
numbers: DOCUMENTS=32000..40000
load: SEARCH callers 4..5 calls 3..4
load: COUNT callers 2..3 calls 3..4 delay 30..60
mend: load-at-start
thing: INDEX or index_corpus or current_index
"""

from collections import defaultdict

CORPUS = [
    " ".join(
        f"{word}{(number * step) % 97}" for step, word in enumerate(("map", "road", "well", "tide", "crate", "form"), 1)
    )
    for number in range(DOCUMENTS)
]


def index_corpus() -> dict[str, set[int]]:
    postings: dict[str, set[int]] = defaultdict(set)
    for number, document in enumerate(CORPUS):
        for word in document.split():
            for end in range(2, len(word) + 1):
                postings[word[:end].casefold()].add(number)
    return dict(postings)


#: sick
INDEX: dict[str, set[int]] = {}
#: mended
INDEX: dict[str, set[int]] = index_corpus()
#: end


def current_index() -> dict[str, set[int]]:
    #: sick
    if not INDEX:
        INDEX.update(index_corpus())  #!
    #: end
    return INDEX


@server.tool()
async def SEARCH(text: str) -> str:
    """Counts the documents that have a word of the text."""
    index = current_index()  #!
    return f"{text}: {sum(len(index.get(word, ())) for word in text.split())}"


@server.tool()
async def COUNT(text: str) -> str:
    """Counts the documents."""
    return f"{text}: {len(CORPUS)}"
