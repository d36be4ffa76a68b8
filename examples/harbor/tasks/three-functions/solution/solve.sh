#!/bin/bash
set -e
cd /srv/project
sed -i 's/name.split(" ")/name.split()/; s/len(text) < length/len(text) <= length/; s/number > 1/number != 1/' text.py
