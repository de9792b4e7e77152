"""Plot attention as images and HTML pages."""
