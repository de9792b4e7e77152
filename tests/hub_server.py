"""A small hub on loopback: the parts of the HTTP interface of the Hugging Face Hub that presets use.

Weights are large files: they are uploaded by the protocol of Git LFS and downloaded from another address, as the Hub
does it. Other files are part of the commit.
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
        self.uploads = {}
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

    def do_PUT(self):
        self.do_POST()

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
        modes = {path: "lfs" if _is_large(path) else "regular" for path in files}
        return _json(
            {"files": [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes.items()]}
        )

    def lfs_batch(self, body, repository):
        objects = [self._lfs_object(**entry) for entry in json.loads(body)["objects"]]
        return _json({"transfer": "basic", "objects": objects})

    def _lfs_object(self, oid, size):
        """What to do with a large file: nothing if it is here already."""
        actions = {} if oid in self.hub.uploads else {"upload": {"href": self.url(f"large/{oid}")}}
        return {"oid": oid, "size": size, **({"actions": actions} if actions else {})}

    def large(self, body, oid):
        if self.command == "PUT":
            self.hub.uploads[oid] = body
            return 200, {}, b""
        return 200, {}, self.hub.uploads[oid]

    def commit(self, body, repository, revision):
        files, deleted = {}, set()
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            elif entry["key"] == "lfsFile":
                data = self.hub.uploads.get(entry["value"]["oid"], b"")
                if _sha256(data) != entry["value"]["oid"]:
                    return _json({"error": "The large file was not uploaded, or is damaged."}, 400)
                files[entry["value"]["path"]] = data
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
        if _is_large(name):
            oid = _sha256(data)
            self.hub.uploads[oid] = data
            linked = {"X-Linked-ETag": f'"{oid}"', "X-Linked-Size": str(len(data)), "X-Repo-Commit": sha}
            elsewhere = self.url(f"large/{oid}").replace("127.0.0.1", "localhost")  # the Hub's is another host, too
            return 302, {**linked, "Location": elsewhere}, b""
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
    rf"/{_REPOSITORY}\.git/info/lfs/objects/batch": _Handler.lfs_batch,
    "/large/([0-9a-f]{64})": _Handler.large,
    f"/{_REPOSITORY}/resolve/([^/]+)/(.+)": _Handler.resolve,
}


def _json(content, status=200):
    return status, {"Content-Type": "application/json"}, json.dumps(content).encode()


def _is_large(path):
    return path.endswith(".safetensors")


def _sha256(data):
    return hashlib.sha256(data).hexdigest()


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
