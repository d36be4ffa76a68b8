import csv
from pathlib import Path


def people():
    with Path(__file__).with_name('cities.txt').open() as rows:
        return sum(int(row['people']) for row in csv.DictReader(rows))
