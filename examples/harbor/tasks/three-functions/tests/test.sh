#!/bin/bash
python3 -I /tests/judge.py /srv/project/text.py /logs/verifier/reward.json
