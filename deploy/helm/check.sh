#!/usr/bin/env bash
# Checks the Helm chart: lint, golden files, values that must be refused, the copies of monitoring, and
# the schemas of Kubernetes, cert-manager and the Prometheus operator.
#
#   check.sh            all of the above
#   check.sh changed    the same, unless these very files were found right before, with all of these tools:
#                       their versions are below, so they would say the same. The sum of the files is in
#                       docs/evidence/helm.csv
#   check.sh --update   writes the golden files instead of comparing them
#
# Helm and kubeconform are built from their Go modules, the schemas come with a Python package and with
# Go modules; they are kept in ISOTONE_HELM_CACHE (~/.cache/isotone-helm). What cannot be installed is
# named, and its checks are skipped.
set -euo pipefail
cd "$(dirname "$0")"

helm_version=v3.22.0
kubeconform_version=v0.8.0
kubernetes=1.33.0
schemas_package=kubernetes-validate==1.37.0
cert_manager=github.com/cert-manager/cert-manager@v1.17.0
prometheus_operator=github.com/prometheus-operator/prometheus-operator@v0.85.0

# The ledger has a line for each state of the files here in which all was right. Where a link leads is part of it, as what is there.
ledger=../../docs/evidence/helm.csv
sha256() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }
sum=$(find . -name __pycache__ -prune -o \( -type f -o -type l \) -print | LC_ALL=C sort | while IFS= read -r file; do
  echo "$file $(readlink "$file" || true)"
  cat "$file"
done | sha256 | cut -d' ' -f1)
if [ "${1:-}" = changed ] && grep -q ",$sum\$" "$ledger"; then
  echo "checked before, all was right: $(grep ",$sum\$" "$ledger" | cut -d, -f1) (deploy/helm/check.sh checks again)"
  exit 0
fi

update= skipped=
[ "${1:-}" != --update ] || update=yes
cache=${ISOTONE_HELM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/isotone-helm}
mkdir -p "$cache"
out=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$out"' EXIT
failed=

fail() { printf 'FAIL: %s\n' "$*" >&2; failed=yes; }

# tool NAME VERSION PACKAGE: installs a command in the cache unless it is there.
tool() {
  local dir=$cache/$1-$2
  [ -x "$dir/$1" ] || GOBIN=$dir go install "$3@$2" >"$out/log" 2>&1 || { tail -3 "$out/log"; return 1; }
  PATH=$dir:$PATH
}

# render VALUES FILE: what the chart makes of a set of values, as the release "demo".
render() {
  helm template demo isotone --namespace default --kube-version "$kubernetes" -f "$1" >"$2" 2>"$out/err" || { cat "$out/err" >&2; return 1; }
}

# The rules and the dashboard are compared by check_monitoring; golden files leave them out.
without_copies() {
  awk '/^# Source: /{copy=0} copy==2 && !/^    /{copy=0}
    copy {next}
    {print}
    /^  isotone.json: /{copy=2; print "    …"}
    /^kind: PrometheusRule/{rule=1} rule && /^spec:/{copy=1; rule=0; print "  …"}
    /^---$/{copy=0}' "$1"
}

check_golden() {
  local values name
  for values in testdata/values/*.yaml; do
    name=$(basename "$values" .yaml)
    helm lint isotone --kube-version "$kubernetes" -f "$values" --quiet >"$out/lint" 2>/dev/null || { fail "helm lint, $name:"; cat "$out/lint" >&2; }
    render "$values" "$out/$name.full.yaml" || { fail "helm template, $name"; continue; }
    without_copies "$out/$name.full.yaml" >"$out/$name.golden"
    if [ -n "$update" ]; then
      cp "$out/$name.golden" "testdata/golden/$name.yaml"
    elif ! diff -u "testdata/golden/$name.yaml" "$out/$name.golden"; then
      fail "$name is not what testdata/golden/$name.yaml has; if that is wanted: deploy/helm/check.sh --update"
    fi
  done
}

# refused WORDS FLAG...: values that must be refused with these words.
refused() {
  local words=$1; shift
  if helm template demo isotone --kube-version "$kubernetes" --set image.repository=isotone "$@" >/dev/null 2>"$out/err"; then
    fail "not refused: $*"
  elif ! grep -qF -- "$words" "$out/err"; then
    fail "$*: refused without the words \"$words\":"; cat "$out/err" >&2
  fi
}

check_refusals() {
  refused "want image.repository" --set image.repository=
  refused "settings.READMODE: isotone serve has no such setting" --set settings.READMODE=lease
  refused "does not match pattern '^[A-Z][A-Z0-9_]*\$'" --set settings.readMode=lease
  refused "at '/replicas': minimum: got 0, want 1" --set replicas=0
  refused "at '/replicas': maximum: got 11, want 9" --set replicas=11
  refused "want as many certificates as pods" --set replicas=7,bootstrap=false
  refused "at '/peerTLS/mode': value must be one of 'certManager', 'csi', 'secret', 'insecure'" --set peerTLS.mode=none
  refused "want peerTLS.secretName" --set peerTLS.mode=secret
  refused "want peerTLS.issuerRef.name" --set peerTLS.mode=csi
  refused "want clientTLS.mode certManager, which makes the certificate" --set clientTLS.mode=selfSigned
  refused "each of its certificates would be an operator's" --set clientTLS.issuerRef.name=corp
  refused "want clientTLS.secretName" --set clientTLS.mode=secret,operator.mode=none
  refused "want certManager or secret for clientTLS.require" --set clientTLS.mode=selfSigned,clientTLS.require=true,operator.mode=none
  refused "want operator.secretName" --set operator.mode=secret
  refused "want settings.ANONYMOUS" --set operator.mode=anonymous
  refused "nothing changes the members" --set operator.mode=none,replicas=5
  refused "want both the same at the first install" --set replicas=5
  refused "want ten seconds more than the delay" --set terminationGracePeriodSeconds=6
  refused "settings.PEERS: the chart sets that itself" --set settings.PEERS=1=a:1
  refused "settings.PD_PORT: the chart sets that itself, from other values" --set settings.PD_PORT=2379
  refused "at '/nodeIDs/3': minimum: got 4, want 65" --set nodeIDs.3=4
  refused "additional properties 'replica' not allowed" --set replica=3
  refused "want proxy.anonymous" --set proxy.enabled=true,acl.secretName=users,operator.mode=none,clientTLS.clientCA=ca.crt
  refused "certificate would be an operator's" --set proxy.enabled=true,proxy.anonymous=ids,clientTLS.require=true
  refused "user named proxy in the list" --set proxy.enabled=true,acl.secretName=users,operator.mode=none
}

# check_lookup: what the chart refuses because of the StatefulSet that runs, here with three pods and no nodeIDs.
check_lookup() {
  local api
  echo '{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "demo-isotone", "namespace": "default",
    "annotations": {"isotone/node-ids": ""}}, "spec": {"replicas": 3}}' >"$out/statefulset.json"
  python3 fake_api.py "$out/statefulset.json" "$out/kubeconfig" &
  api=$!
  for _ in $(seq 100); do
    [ ! -s "$out/kubeconfig" ] || break
    sleep 0.1
  done
  helm template demo isotone --namespace default --kubeconfig "$out/kubeconfig" --kube-version "$kubernetes" --dry-run=server -f testdata/values/renamed.yaml >/dev/null 2>"$out/err" ||
    { fail "nodeIDs alone:"; cat "$out/err" >&2; }
  helm template demo isotone --namespace default --kubeconfig "$out/kubeconfig" --kube-version "$kubernetes" --dry-run=server -f testdata/values/five.yaml >/dev/null 2>"$out/err" ||
    { fail "replicas alone:"; cat "$out/err" >&2; }
  refused "want two upgrades" --namespace default --kubeconfig "$out/kubeconfig" --dry-run=server -f testdata/values/again.yaml
  kill "$api"
  wait "$api" 2>/dev/null || true
}

# The chart has links to the files of monitoring, not copies; what it renders of them is theirs.
check_monitoring() {
  local file
  for file in alerts.yml grafana.json; do
    [ -L "isotone/files/$file" ] && [ "isotone/files/$file" -ef "../../monitoring/$file" ] || fail "isotone/files/$file is not a link to monitoring/$file"
  done
  sed -n '/^  isotone.json: /,/^---$/p' "$out/monitoring.full.yaml" | sed '1d; /^---$/d; /^# Source/d; s/^    //' | diff -q - ../../monitoring/grafana.json >/dev/null ||
    fail "the ConfigMap has another dashboard than monitoring/grafana.json"
  sed -n '/^kind: PrometheusRule/,/^---$/p' "$out/monitoring.full.yaml" | sed '1,/^spec:/d; /^---$/d; s/^  //; ' |
    diff -B - ../../monitoring/alerts.yml >"$out/diff" || { fail "the PrometheusRule has other rules than monitoring/alerts.yml:"; head -20 "$out/diff" >&2; }
}

# prepare_schemas makes the JSON schemas that kubeconform reads.
prepare_schemas() {
  local dir=$cache/schemas-$kubernetes
  [ ! -e "$dir/complete" ] || return 0
  python3 -m pip install -q --target "$cache/python" --no-deps "$schemas_package" pyyaml >"$out/log" 2>&1 || { tail -3 "$out/log"; return 1; }
  local module crds=()
  for module in "$cert_manager" "$prometheus_operator"; do
    module=$(cd "$out" && go mod download -json "$module" | sed -n 's/.*"Dir": "\(.*\)",/\1/p') && [ -n "$module" ] || { echo "a module with definitions cannot be downloaded"; return 1; }
    crds+=("$module"/deploy/crds/*.yaml "$module"/example/prometheus-operator-crd/*.yaml)
  done
  PYTHONPATH=$cache/python python3 schemas.py "$cache/python/kubernetes_validate/kubernetes-json-schema/v$kubernetes-local-strict" "$dir" "${crds[@]}"
}

check_schemas() {
  local file
  for file in "$out"/*.full.yaml; do
    kubeconform -strict -summary -schema-location "$cache/schemas-$kubernetes/{{.ResourceKind}}{{.KindSuffix}}.json" "$file" >"$out/result" 2>&1 || fail "$(basename "$file" .full.yaml) and the schemas:"
    cat "$out/result"
  done
  sed 's/publishNotReadyAddresses/publishNotReadyAddress/' "$out/default.full.yaml" >"$out/wrong.yaml"
  ! kubeconform -strict -schema-location "$cache/schemas-$kubernetes/{{.ResourceKind}}{{.KindSuffix}}.json" "$out/wrong.yaml" >/dev/null || fail "kubeconform does not notice a wrong field"
}

if ! tool helm "$helm_version" helm.sh/helm/v3/cmd/helm; then
  echo "skipped: helm $helm_version cannot be built, and nothing of the chart is checked"
  exit 0
fi
check_golden
check_refusals
check_lookup
check_monitoring
if tool kubeconform "$kubeconform_version" github.com/yannh/kubeconform/cmd/kubeconform && prepare_schemas; then
  check_schemas
else
  skipped=yes
  echo "skipped: kubeconform or the schemas cannot be installed; the fields of the chart are not checked"
fi
[ -z "$failed" ] || exit 1
echo "the chart is as it should be"
if [ -z "$update$skipped" ] && ! grep -q ",$sum\$" "$ledger"; then
  echo "$(date -u +%F),$sum" >>"$ledger" && echo "noted in docs/evidence/helm.csv"
fi
