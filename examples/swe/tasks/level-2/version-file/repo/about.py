from pathlib import Path


def version():
    return Path(__file__).with_name('VERSION').read_text().strip()
