#!/bin/bash
set -e
awk '$2 == "ERROR" { print $3 }' /app/app.log | sort | uniq -c | sort -k1,1nr -k2,2 | awk '{ print $2, $1 }' >/app/errors.txt
