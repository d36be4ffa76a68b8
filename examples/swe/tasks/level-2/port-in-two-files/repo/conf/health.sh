PORT=8008
curl --silent "http://127.0.0.1:$PORT/health"
