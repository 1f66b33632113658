"""Serves the files of a directory by HTTP, with byte ranges, also as a proxy of plain HTTP; or by HTTPS.

file_server.py DIRECTORY [PEM]     on a port of the loopback interface that it prints, until it is killed. PEM: a file
                                   with key and certificate, for HTTPS

The first part of a path chooses the manner: /slow pauses for 3 s within a file, /cut ends the connection in the middle
of a file unless a range is asked for, /whole knows no ranges, /moved redirects to the address after the question mark;
any other part is as /files. It prints a line for each request: the method, the address as it was asked for, and the
status.
"""

import http.server
import pathlib
import re
import ssl
import sys
import time
import urllib.parse

DIRECTORY = pathlib.Path(sys.argv[1])
PAUSE_SECONDS = 3


class Handler(http.server.BaseHTTPRequestHandler):
    def log_request(self, code="-", size="-"):
        print(self.command, self.path, code, flush=True)

    def do_GET(self):
        address = urllib.parse.urlsplit(self.path)
        path = pathlib.PurePosixPath(address.path)
        if path.parts[1] == "moved":
            self.send_response(302)
            self.send_header("Location", address.query)
            self.end_headers()
            return
        file = DIRECTORY / path.name
        if not file.is_file():
            self.send_error(404)
            return
        manner = path.parts[1]
        content = file.read_bytes()
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        first = int(asked[1]) if asked and manner != "whole" else 0
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        half = (first + len(content)) // 2
        self.wfile.write(content[first:half])
        if manner == "cut" and not first:
            return
        if manner == "slow":
            self.wfile.flush()
            time.sleep(PAUSE_SECONDS)
        self.wfile.write(content[half:])


with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
    if len(sys.argv) > 2:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[2])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print("port", server.server_port, flush=True)
    server.serve_forever()
