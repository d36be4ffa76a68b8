#!/bin/bash
set -e
mkdir -p /opt/greet
echo world >/opt/greet/default-name
cat >/usr/local/bin/greet <<'SCRIPT'
#!/bin/sh
echo "$GREETING, ${1:-$(head -n 1 /opt/greet/default-name)}!"
SCRIPT
chmod +x /usr/local/bin/greet
