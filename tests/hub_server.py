"""A small hub on loopback: the parts of the HTTP interface of the Hugging Face Hub that presets use.

Every file is a regular one. What large files need besides is the affair of `huggingface_hub`.
"""

import base64
import contextlib
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class Hub:
    """Repositories: for each its branches, and for each commit the files by name."""

    def __init__(self):
        self.branches = {}
        self.commits = {}
        self.requests = []

    def commit(self, repository, branch, files, deleted=()):
        """Add a commit and return its hash."""
        before = self.commits.get(self.branches.setdefault(repository, {}).get(branch), {})
        after = {name: data for name, data in {**before, **files}.items() if name not in deleted or name in files}
        sha = hashlib.sha1(repr((repository, len(self.commits), sorted(after))).encode()).hexdigest()
        self.commits[sha] = after
        self.branches[repository][branch] = sha
        return sha

    def find(self, repository, revision):
        if repository not in self.branches:
            raise MissingError("RepoNotFound")
        sha = self.branches[repository].get(revision, revision)
        if sha not in self.commits:
            raise MissingError("RevisionNotFound")
        return sha


class MissingError(Exception):
    """Its message is the error code of the hub."""


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._answer({})

    def do_HEAD(self):
        self._answer({})

    def do_POST(self):
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body):
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        try:
            for pattern, respond in _ROUTES.items():
                if match := re.fullmatch(pattern, path):
                    status, headers, content = respond(self, body, *match.groups())
                    break
            else:
                raise MissingError("EntryNotFound")
        except MissingError as error:
            status, headers, content = 404, {"X-Error-Code": str(error), "X-Error-Message": "not here"}, b"{}"
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *arguments):
        pass

    def url(self, path):
        return f"http://{self.headers['Host']}/{path}"

    def create(self, body):
        request = json.loads(body)
        name = f"{request['organization']}/{request['name']}"
        if name in self.hub.branches:
            return _json({"error": "exists", "url": self.url(name)}, 409)
        self.hub.commit(name, "main", {".gitattributes": b"* text\n"})
        return _json({"url": self.url(name), "name": name})

    def branch(self, body, repository, name):
        self.hub.branches[repository].setdefault(name, self.hub.branches[repository]["main"])
        return _json({})

    def validate(self, body):
        return _json({"warnings": [], "errors": []})

    def preupload(self, body, repository, revision):
        files = [file["path"] for file in json.loads(body)["files"]]
        return _json({"files": [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in files]})

    def commit(self, body, repository, revision):
        files, deleted = {}, set()
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            elif entry["key"] == "deletedFile":
                deleted.add(entry["value"]["path"])
        sha = self.hub.commit(repository, revision, files, deleted)
        return _json({"success": True, "commitOid": sha, "commitUrl": self.url(f"{repository}/commit/{sha}")})

    def info(self, body, repository, revision=None):
        sha = self.hub.find(repository, revision or "main")
        files = [{"rfilename": name} for name in self.hub.commits[sha]]
        return _json({"_id": "1", "id": repository, "sha": sha, "private": False, "tags": [], "siblings": files})

    def tree(self, body, repository, revision):
        files = self.hub.commits[self.hub.find(repository, revision)]
        return _json(
            [{"type": "file", "oid": _oid(data), "size": len(data), "path": name} for name, data in files.items()]
        )

    def resolve(self, body, repository, revision, name):
        sha = self.hub.find(repository, revision)
        if name not in self.hub.commits[sha]:
            raise MissingError("EntryNotFound")
        data = self.hub.commits[sha][name]
        return 200, {"ETag": f'"{_oid(data)}"', "X-Repo-Commit": sha}, data


_REPOSITORY = "([^/]+/[^/]+)"
_ROUTES = {
    "/api/repos/create": _Handler.create,
    "/api/validate-yaml": _Handler.validate,
    f"/api/models/{_REPOSITORY}/branch/(.+)": _Handler.branch,
    f"/api/models/{_REPOSITORY}/preupload/(.+)": _Handler.preupload,
    f"/api/models/{_REPOSITORY}/commit/(.+)": _Handler.commit,
    f"/api/models/{_REPOSITORY}/revision/(.+)": _Handler.info,
    f"/api/models/{_REPOSITORY}/tree/([^/]+)": _Handler.tree,
    f"/api/models/{_REPOSITORY}": _Handler.info,
    f"/{_REPOSITORY}/resolve/([^/]+)/(.+)": _Handler.resolve,
}


def _json(content, status=200):
    return status, {"Content-Type": "application/json"}, json.dumps(content).encode()


def _oid(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@contextlib.contextmanager
def running_hub():
    """A hub and its address."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
