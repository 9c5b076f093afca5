"""The splits of the authors' own runs, which their random numbers decide and ours cannot repeat.

Source: recomputed from the authors' code with the random-bit mode that was its library's default in 2024.
"""

# Seed -> the 66 pairs of known fuzzy-logic terms (4 variables), two hexadecimal digits each, in permuted order: the
# first 19, 33 or 46 are held out at the fractions 0.3, 0.5, 0.7, and the rest are for training.
FUZZY_LOGIC = {
    0: """1b 02 12 6b 8b 23 05 39 58 68 3b 56 57 18 37 15 89 ab 0a 4a 7b 9b 19 46 78 49 5b 16 13 67 24 8a 08 3a 26 03 35
          2b 36 29 28 5a 9a 69 7a 0b 48 14 59 2a 45 1a 17 34 06 38 09 04 79 27 25 4b 6a 07 01 47""",
    1: """36 24 47 1b 19 0b 7b 0a 05 ab 08 46 4a 07 6b 57 89 79 14 35 68 48 37 4b 67 2b 13 56 18 12 27 16 39 2a 17 06 23
          34 6a 02 5b 28 5a 59 29 9b 03 58 38 1a 26 01 69 09 04 15 8a 9a 8b 25 3b 3a 78 49 45 7a""",
    2: """06 07 7a 35 46 02 2a 23 58 26 45 19 6b 68 18 04 13 7b 6a 09 05 8a 15 4a 67 57 48 5b 16 8b 3a 1b 36 0b 9b 56 17
          5a 12 25 01 37 69 0a 59 24 89 08 14 3b 39 79 47 9a 1a 29 38 4b 78 49 34 ab 28 2b 27 03""",
}
