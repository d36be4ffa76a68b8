#!/bin/bash
set -e
git merge --quiet --ff-only 'HEAD@{1}'
