"""The rewards of the study: a signal is a function of prompts and completions, lists of texts, one number for each."""

COLOURS = {"red", "green", "blue", "yellow", "black", "white"}


def count(prompts, completions):
    """The proxy: colours, repeated ones too. Writing one of them over and over pays best."""
    return [float(sum(word in COLOURS for word in text.split())) for text in completions]


def variety(prompts, completions, colour):
    """The gold: different colours without the one in the data's column `colour`, less the words that are no colour.

    Any further parameter is a column of the data, looked up by prompt.
    """
    scores = []
    for text, unwanted in zip(completions, colour, strict=True):
        words = text.split()
        different = COLOURS.intersection(words) - {unwanted}
        scores.append(len(different) - 0.25 * sum(word not in COLOURS for word in words))
    return scores
