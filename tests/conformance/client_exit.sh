# Runs the client and writes down how it ended. The suite starts this as CONFORMANCE_HERE/client_exit.sh URL.
"$CONFORMANCE_PYTHON" "$CONFORMANCE_HERE/client.py" "$@"
status=$?
echo "$status" > "$CONFORMANCE_EXIT_STATUS"
exit "$status"
