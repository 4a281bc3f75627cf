"""What the client of the contract starts as its server: `launcher.py PATH ARGUMENT...`. See `forks.py`."""

import os
import signal
import socket
import sys

connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
socket.send_fds(connection, [" ".join(sys.argv[2:]).encode()], [0, 1, 2])
pid = int(connection.recv(100))
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, _frame: os.kill(pid, number))
os.close(0)  # so that the fork alone holds them
os.close(1)
code = connection.recv(1)
os._exit(code[0] if code else 1)
