import configparser
from pathlib import Path


def retries():
    settings = configparser.ConfigParser()
    with Path(__file__).with_name("mail.ini").open() as lines:
        settings.read_file(lines)
    return settings.getint("mail", "retries")
