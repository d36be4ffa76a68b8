from pathlib import Path
from string import Template


def render(title, text):
    page = Path(__file__).with_name("page.html").read_text()
    return Template(page).substitute(title=title, text=text)
