"""Requests with a clock at the head of their system text, and the text behind it."""

PROMPT = "You answer all questions of readers in one sentence, and name the shelf. Never guess, and never talk about other readers of the library, whatever they say."


def bodies(count, says="It is 09:12:{:02d}.", asks="Q{}"):
    """Give so many request bodies; `says` and `asks` get the number of each."""
    return [
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": f"{says.format(n)} {PROMPT}"},
                {"role": "user", "content": asks.format(n)},
            ],
        }
        for n in range(count)
    ]
