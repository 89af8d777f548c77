#!/usr/bin/env python3
"""Serves as much of the Kubernetes API as Helm's "lookup" needs, with one StatefulSet in it.

usage: fake_api.py STATEFULSET.json KUBECONFIG

Listens on a free port of 127.0.0.1, writes KUBECONFIG, and serves until it is killed.
"""

import http.server
import json
import sys

with open(sys.argv[1]) as f:
    statefulset = json.load(f)
meta = statefulset["metadata"]
apps = {"name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}], "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"}}
resource = {"name": "statefulsets", "singularName": "statefulset", "namespaced": True, "kind": "StatefulSet", "verbs": ["get"]}
answers = {
    "/version": {"major": "1", "minor": "33", "gitVersion": "v1.33.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [apps]},
    "/apis/apps/v1": {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps/v1", "resources": [resource]},
    "/api/v1": {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": []},
    f"/apis/apps/v1/namespaces/{meta['namespace']}/statefulsets/{meta['name']}": statefulset,
}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        answer = answers.get(self.path.partition("?")[0])
        body = json.dumps(answer or {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}).encode()
        self.send_response(200 if answer else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open(sys.argv[2], "w") as f:
    json.dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "fake",
        "clusters": [{"name": "fake", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "nobody"}}],
        "users": [{"name": "nobody", "user": {}}],
    }, f)
server.serve_forever()
