"""Machine translation: word pieces in, word pieces out, attention over words."""
