#!/bin/sh
# Print what would be saved, one name a line.
for name in "$@"; do
    echo "saved $name"
done
