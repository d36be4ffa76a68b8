from pathlib import Path

LOCK = Path(__file__).with_name("app.lock")


def start():
    if LOCK.exists():
        raise RuntimeError(f"already running as {LOCK.read_text().strip()}")
    return "started"
