def plain_name(file_name):
    """``file_name`` without the suffix .txt."""
    return file_name.rstrip(".txt")
