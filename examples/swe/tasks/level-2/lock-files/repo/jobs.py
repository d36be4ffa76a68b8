from pathlib import Path

ROOT = Path(__file__).resolve().parent


def runnable():
    """The jobs that may run now; none while anything is locked."""
    if any(ROOT.rglob("*.lock")):
        return []
    return sorted(job.stem for job in ROOT.glob("jobs/**/*.txt"))
