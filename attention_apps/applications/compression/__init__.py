"""Sentence compression by deletion."""
