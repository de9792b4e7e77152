"""Writes texts that are not news, one per line, on which models for news should be unsure.

    python not_news.py FOLDER

One file for each kind: reviews, e-mails and abstracts, which were made up, tables, Python code, and other languages.
"""

import argparse
import csv
import inspect
import json.decoder
import random
import shlex
import textwrap
from pathlib import Path

from other_languages import SENTENCES

_NUM_TABLES = 25
_COLUMNS = ("north", "south", "east", "west", "total", "apples", "pears", "plums", "red", "blue")
_CODE_LINES, _CODE_STEP = 8, 24

REVIEWS = (
    "I bought these headphones for my commute and I love them. The sound is warm, the battery lasts all week, and"
    " they fold up small. My only complaint is the case, which feels cheap.",
    "Terrible service. We waited an hour for our food and when it came my soup was cold. The waiter never "
    "apologized and we will not be coming back to this place.",
    "This book kept me up until two in the morning. The characters feel real and the ending surprised me, "
    "although the middle part drags a little. Four stars from me.",
    "The blender is loud but it does the job. It crushes ice without trouble and it is easy to clean. I would buy"
    " it again, but not at the full price.",
    "We stayed here for three nights with our two kids. The room was clean and the pool was great, but the walls "
    "are thin and you can hear everything from the corridor.",
    "Do not waste your money on this phone case. It cracked after one week and the seller has not answered any of"
    " my messages. I am very disappointed.",
    "My daughter loves this puzzle and asks for it every evening. The pieces are thick and the colors are bright."
    " A perfect gift for a four year old.",
    "The film looks beautiful and the music is lovely, but I did not care about anyone in it. After an hour I "
    "wanted to leave and so did my friend.",
    "Best pizza I have had in years! The crust is thin and crisp and the staff are so friendly. Go early, because"
    " there is always a line out the door.",
    "The shoes run small, so order one size up. Once I had the right size they were comfortable from the first "
    "day and they still look new after a month.",
)
EMAILS = (
    "Hi Anna, thanks for sending the slides. I went through them last night and left a few comments. Could you "
    "update the second chart before our call on Thursday? Best, Tom",
    "Dear customer, your order has been packed and will be handed to the carrier today. You can follow your "
    "parcel with the number below. Please do not reply to this message.",
    "Hello everyone, the kitchen on our floor will be closed next week because the sink is being replaced. Please"
    " use the one upstairs and label your food. Thank you for your patience.",
    "Hey, are we still on for Saturday? I can pick you up at ten if that works. Bring a jacket, it gets windy up "
    "there, and let me know if your brother wants to come too.",
    "Dear Ms. Lee, I am writing to apply for the position of assistant that I saw on your website. I have "
    "attached my letter and would be happy to tell you more in a call.",
    "Hi team, quick reminder that your hours are due by noon tomorrow. If you were on leave this week please "
    "enter that as well. Ping me if something does not work. Cheers, Sam",
    "Dear parents, on Friday the class is going to the museum. Please give your child a packed lunch and a bottle"
    " of water, and sign the form that we sent home on Monday.",
    "Hi Marc, I could not reproduce the bug on my laptop. Can you send me the log and tell me which version you "
    "are using? I will look at it again after lunch.",
    "Good morning, I would like to change my appointment from Tuesday to any day in the following week. Mornings "
    "suit me best. Could you tell me what is free? Kind regards",
    "Hey Julia, happy birthday! I hope you have a wonderful day and get lots of cake. Let us have dinner soon, it"
    " has been far too long since we last met.",
)
ABSTRACTS = (
    "We study the problem of learning a classifier from few labeled examples. We propose a method that combines a"
    " kernel with a simple prior, prove a bound on its error, and show in experiments that it compares well with "
    "larger models.",
    "In this paper we present a new algorithm for sorting nearly ordered sequences. The algorithm uses constant "
    "additional memory and runs in linear time if the number of inversions is small. An implementation is "
    "available.",
    "Background: sleep is known to affect memory, but its role in motor learning is less clear. Methods: forty "
    "adults practiced a finger task in the evening. Results: those who slept improved more. Conclusion: sleep "
    "supports motor learning.",
    "The aim of this work is to derive the equations of motion of a double pendulum with a moving support. We "
    "linearize the system near its equilibrium, compute its eigenfrequencies, and compare them with a numerical "
    "solution.",
    "Attention mechanisms have become a standard part of neural networks for sequences. Here we analyze how the "
    "distribution of weights changes with depth, and find that heads of the upper layers attend to fewer "
    "positions.",
    "We report the synthesis of a porous polymer with a high surface area. The material was characterized by "
    "adsorption of nitrogen and by electron microscopy, and its capacity for carbon dioxide was measured at two "
    "temperatures.",
    "This article reviews methods for estimating the age of trees from core samples. We discuss sources of error,"
    " compare three corrections, and give recommendations for species with irregular rings.",
    "A theorem of the type of a fixed point is proved for maps on a complete metric space that satisfy a weak "
    "contraction condition. Two examples show that the assumptions cannot be dropped.",
    "We describe a corpus of spoken dialogs between pairs of speakers who solve a task together. The corpus "
    "contains ten hours of speech with transcripts, and we provide baselines for two tasks.",
    "Soil samples were taken at forty points along a slope and analyzed for carbon and nitrogen. Both decreased "
    "with depth, and their ratio was lowest at the foot of the slope, which suggests transport by water.",
)


def draw_tables() -> list[str]:
    """Return tables of random numbers, each on one line."""
    chance = random.Random(0)
    tables = []
    for _ in range(_NUM_TABLES):
        separator, width = chance.choice([", ", " | ", "; "]), chance.randint(3, 5)
        rows = [chance.sample(_COLUMNS, width)]
        for _ in range(chance.randint(3, 6)):
            numbers = [str(round(chance.uniform(0, 999), chance.randint(0, 2))) for _ in range(width - 1)]
            rows.append([chance.choice(_COLUMNS), *numbers])
        tables.append(" ".join(separator.join(row) for row in rows))
    return tables


def read_code() -> list[str]:
    """Return pieces of modules of the standard library, each on one line."""
    pieces = []
    for module in (json.decoder, textwrap, shlex, csv):
        lines = [line.strip() for line in inspect.getsource(module).splitlines() if line.strip()]
        starts = range(0, len(lines) - _CODE_LINES, _CODE_STEP)
        pieces += [" ".join(lines[start : start + _CODE_LINES]) for start in starts]
    return pieces


def all_kinds() -> dict[str, list[str]]:
    """Return the texts by kind."""
    return {
        "reviews": list(REVIEWS),
        "emails": list(EMAILS),
        "abstracts": list(ABSTRACTS),
        "tables": draw_tables(),
        "code": read_code(),
        "languages": [" ".join(text.splitlines()) for text in SENTENCES.values()],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for kind, texts in all_kinds().items():
        (folder / f"{kind}.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
