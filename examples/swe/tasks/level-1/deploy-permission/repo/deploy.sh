#!/bin/sh
echo "deploying ${1:-nothing}"
