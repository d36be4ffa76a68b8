from textkit.layout import columns, wrapped

__all__ = ["columns", "wrapped"]
