"""Speech recognition: Listen, Attend and Spell."""
