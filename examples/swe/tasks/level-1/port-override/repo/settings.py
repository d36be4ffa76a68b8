import configparser
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def port():
    """The port of the last file that sets one."""
    settings = configparser.ConfigParser()
    settings.read([ROOT / "default.ini", ROOT / "local.ini"])
    return settings.getint("server", "port")
