"""Text summarization: a pointer-generator, and pretrained models of KerasHub."""
