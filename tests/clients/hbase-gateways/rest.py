"""A round trip through the REST gateway: PORT."""

import base64
import json
import sys
import urllib.error
import urllib.request

BASE = f"http://127.0.0.1:{sys.argv[1]}"


def call(method, path, body=None, accept="application/json"):
    """Status, headers and body of a response."""
    request = urllib.request.Request(path if path.startswith("http") else BASE + path, method=method)
    request.add_header("Accept", accept)
    if body is not None:
        request.add_header("Content-Type", "application/json")
        request.data = json.dumps(body).encode()
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, b""


def b64(text):
    return base64.b64encode(text.encode()).decode()


def row(key, value):
    return {"key": b64(key), "Cell": [{"column": b64("f:q"), "$": b64(value)}]}


def keys(body):
    return [base64.b64decode(row["key"]).decode() for row in json.loads(body)["Row"]]


call("DELETE", "/resty/schema")
assert call("GET", "/version/cluster")[0] == 200
assert len(json.loads(call("GET", "/status/cluster")[2])["LiveNodes"]) == 1
assert call("PUT", "/resty/schema", {"name": "resty", "ColumnSchema": [{"name": "f"}]})[0] in (200, 201)
assert call("PUT", "/resty/r1", {"Row": [row("r1", "v1"), row("r2", "v2")]})[0] == 200
assert call("GET", "/resty/r1/f:q", accept="application/octet-stream")[2] == b"v1"
status, headers, _ = call("PUT", "/resty/scanner", {"batch": 100})
assert status == 201
assert keys(call("GET", headers["Location"])[2]) == ["r1", "r2"]
assert call("DELETE", headers["Location"])[0] == 200
assert call("DELETE", "/resty/r1")[0] == 200
assert call("GET", "/resty/r1")[0] == 404
assert keys(call("GET", "/resty/*")[2]) == ["r2"]
assert call("DELETE", "/resty/schema")[0] == 200
assert call("GET", "/resty/schema")[0] == 404
print("ok")
