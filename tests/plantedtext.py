"""The sentences that planted logs are made of."""

TOPICS = [
    "ferries",
    "museums",
    "libraries",
    "orchards",
    "bakeries",
    "harbours",
    "glaciers",
    "theatres",
    "vineyards",
    "stations",
    "gardens",
    "markets",
]
VERBS = [
    "plan",
    "explain",
    "compare",
    "check",
    "translate",
    "summarise",
    "price",
    "book",
    "cancel",
    "reorder",
    "inspect",
    "measure",
    "describe",
    "repair",
]
NOUNS = [
    "ticket",
    "route",
    "pier",
    "ledger",
    "invoice",
    "sail",
    "engine",
    "kettle",
    "lantern",
    "map",
    "crate",
    "window",
    "bridge",
    "tunnel",
    "meadow",
    "saddle",
]


def sentence(rng):
    """Give one sentence; two are seldom equal."""
    verb, first, topic, last = (rng.choice(names) for names in (VERBS, NOUNS, TOPICS, NOUNS))
    return f"{verb.capitalize()} the {first} of the {topic} near the {last}."


def words(rng, count):
    """Give some sentences."""
    return " ".join(sentence(rng) for _ in range(count))
