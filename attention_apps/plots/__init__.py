"""Where a model looked, as pictures and pages."""
