package structure_test

import (
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/isotone/isotone"

// dependencies has one line for each package of the module:
//
//	package: packages of the module it may import ; others it may import
//
// A package is given by its directory, "." for the root; another module by a
// prefix of its import paths. The standard library is always allowed, except in
// the zone. "*" allows everything. A line may come before its package exists. A
// package may import only packages on lines above its own.
const dependencies = `
.:
snowflake:                      .
internal/reply:                 .
disruptor:

internal/core/mutant:
internal/core/interval:         . internal/core/mutant
internal/core/timeline:         internal/core/mutant
internal/core/frontier:         . internal/core/mutant
internal/core/session:          . internal/core/frontier internal/core/mutant
internal/core/oracle:           . internal/core/timeline internal/core/mutant
internal/core/redislock:        . internal/core/session internal/core/oracle internal/core/mutant
internal/core/route:            internal/core/mutant
internal/core/search:           . internal/core/mutant
internal/core/replica:          . snowflake internal/core/interval internal/core/timeline internal/core/session internal/core/frontier internal/core/oracle internal/core/route internal/core/mutant ; go.etcd.io/raft/v3 google.golang.org/protobuf
internal/core/lincheck:         . internal/core/timeline
internal/core/wire:             internal/core/interval internal/core/mutant ; go.etcd.io/raft/v3 google.golang.org/protobuf
internal/core/journal:          internal/core/mutant ; go.etcd.io/raft/v3 google.golang.org/protobuf
internal/core/sim:              . snowflake internal/core/interval internal/core/timeline internal/core/session internal/core/redislock internal/core/frontier internal/core/oracle internal/core/route internal/core/search internal/core/replica internal/core/lincheck internal/core/wire internal/core/journal internal/core/mutant ; go.etcd.io/raft/v3 google.golang.org/protobuf

internal/auth/address:
internal/auth/access:           . internal/core/timeline internal/auth/address ; golang.org/x/crypto
internal/auth/certname:
internal/auth/authority:        internal/auth/certname
internal/auth/credential:

internal/live/store:            .
internal/live:                  . internal/reply internal/live/store

internal/host/steady:           internal/core/interval ; golang.org/x/sys
internal/host/config:           . snowflake internal/live internal/auth/access internal/auth/address internal/auth/certname ; github.com/alecthomas/kong
internal/host/trace:
internal/host/faults:           internal/core/interval
internal/host/stops:            internal/core/oracle internal/core/replica ; go.etcd.io/raft/v3 google.golang.org/protobuf golang.org/x/sys
internal/host/utc:              ; golang.org/x/sys
internal/host/telemetry:        internal/host/utc ; github.com/prometheus/client_golang
internal/host/supervisor:
internal/host/subprocess:        ; golang.org/x/sys
internal/host/listen:           internal/auth/address
internal/host/loop:             ; golang.org/x/sys
internal/host/secure:           internal/host/loop
internal/host/storage:          internal/core/journal ; go.etcd.io/raft/v3 google.golang.org/protobuf golang.org/x/sys
internal/host/backup:           internal/host/storage
internal/host/peer:             internal/core/route internal/core/wire ; go.etcd.io/raft/v3 google.golang.org/protobuf

client:                         . snowflake internal/reply internal/core/interval internal/core/search internal/core/session internal/host/steady

internal/front/head:
internal/front:                 . snowflake internal/core/interval internal/core/timeline internal/core/session internal/core/redislock internal/auth/access internal/host/trace
internal/front/gate:            internal/host/loop
internal/front/httpapi:         . snowflake internal/core/interval internal/core/timeline internal/core/session internal/front
internal/front/admin:           . internal/auth/address internal/front internal/front/httpapi
internal/front/requestid:
internal/front/stats:           . internal/host/trace internal/front/requestid ; github.com/HdrHistogram/hdrhistogram-go golang.org/x/sys
internal/front/http1:           . snowflake internal/core/interval internal/auth/access internal/host/loop internal/host/trace internal/front internal/front/head internal/front/httpapi internal/front/stats internal/front/requestid
internal/front/resp:            . snowflake internal/core/interval internal/core/timeline internal/core/session internal/core/redislock internal/core/frontier internal/auth/access internal/host/loop internal/host/trace internal/front internal/front/requestid
internal/front/grpc:            . snowflake internal/core/interval internal/core/session internal/core/frontier internal/core/timeline internal/auth/access internal/host/trace internal/front internal/front/httpapi ; google.golang.org/protobuf
internal/front/pd:              . internal/auth/access internal/front internal/front/grpc internal/front/httpapi ; google.golang.org/protobuf
internal/front/http2:           . internal/auth/access internal/host/loop internal/front internal/front/grpc internal/front/http1 ; golang.org/x/net
internal/front/web:             . snowflake internal/core/interval internal/core/session internal/core/frontier internal/auth/access internal/host/listen internal/host/trace internal/front internal/front/grpc internal/front/httpapi internal/front/stats internal/front/requestid ; github.com/quic-go/quic-go
internal/front/thriftrpc:       . snowflake internal/auth/access internal/host/listen internal/front ; github.com/apache/thrift

internal/node:                  . snowflake disruptor internal/host/steady internal/core/interval internal/core/timeline internal/core/session internal/core/redislock internal/core/oracle internal/core/replica internal/core/wire internal/host/storage internal/host/backup internal/auth/access internal/auth/certname internal/auth/credential internal/host/secure internal/host/peer internal/host/loop internal/host/trace internal/front internal/host/telemetry ; go.etcd.io/raft/v3 google.golang.org/protobuf golang.org/x/sys
internal/proxy/balance:         .
internal/proxy:                 . internal/auth/address internal/host/loop internal/host/listen internal/host/trace internal/front/head internal/front/httpapi internal/proxy/balance internal/front/requestid internal/front/stats ; golang.org/x/sys
internal/proxy/forward:         . internal/core/timeline internal/host/loop internal/host/trace internal/front

internal/inspect/survey:        .
spec:
spec/search:                    spec
internal/inspect/protocoltrace: . internal/core/interval internal/core/oracle internal/core/replica internal/core/session internal/core/timeline spec ; go.etcd.io/raft/v3 google.golang.org/protobuf
internal/inspect/decode:        . snowflake
internal/inspect/dashboard:     . internal/inspect/survey
internal/inspect/doctor:        internal/core/oracle internal/core/session internal/core/timeline internal/auth/certname internal/front internal/inspect/survey
internal/inspect/doctor/probe:  internal/front internal/inspect/survey internal/inspect/doctor ; golang.org/x/sys

internal/operator:              . client internal/core/oracle internal/host/config internal/auth/address internal/host/listen internal/host/peer internal/front internal/front/admin internal/inspect/survey
internal/server:                . client snowflake internal/proxy/balance internal/core/oracle internal/core/timeline internal/inspect/dashboard internal/inspect/doctor internal/proxy/forward internal/front internal/front/admin internal/front/gate internal/front/grpc internal/front/http1 internal/front/http2 internal/front/httpapi internal/front/pd internal/front/resp internal/front/stats internal/front/thriftrpc internal/front/requestid internal/front/web internal/auth/access internal/host/backup internal/auth/address internal/auth/certname internal/host/config internal/auth/credential internal/host/listen internal/host/loop internal/host/secure internal/host/storage internal/host/supervisor internal/host/telemetry internal/host/trace internal/host/utc internal/live internal/node internal/operator internal/proxy internal/reply internal/inspect/survey internal/inspect/protocoltrace internal/core/replica ; github.com/prometheus/client_golang github.com/quic-go/quic-go

internal/check/await:
internal/check/rig:             internal/check/await internal/auth/access internal/front internal/host/loop
internal/check/testnode:        internal/check/await internal/check/rig internal/host/config internal/server
internal/check/bench:           . internal/reply internal/core/interval internal/core/lincheck internal/front/head ; github.com/HdrHistogram/hdrhistogram-go github.com/quic-go/quic-go golang.org/x/net golang.org/x/sys
internal/check/child:
internal/check/clockbench:      . client internal/core/lincheck internal/host/steady internal/check/bench internal/check/child ; github.com/HdrHistogram/hdrhistogram-go
internal/check/svg:
internal/check/parallel:
internal/check/evidence:
internal/check/pgserver:        internal/check/child
internal/check/ports:
internal/check/namespace:       internal/check/child ; golang.org/x/sys
internal/check/wallclock:       internal/check/child ; golang.org/x/sys
internal/check/strace:          internal/check/child
internal/check/cluster:         internal/check/child internal/check/ports
internal/check/demo:            . client internal/core/lincheck internal/check/child internal/check/cluster internal/check/svg ; github.com/HdrHistogram/hdrhistogram-go
internal/check/demofencing:     . client internal/reply internal/check/bench internal/check/child internal/check/cluster internal/check/ports internal/check/svg
internal/check/demolive:        . internal/reply internal/live internal/check/bench internal/check/cluster internal/check/svg
internal/check/demoscale:       . internal/front/stats internal/proxy internal/proxy/balance internal/check/bench internal/check/svg ; github.com/HdrHistogram/hdrhistogram-go
internal/check/chaos:           . internal/core/lincheck internal/core/oracle internal/host/faults internal/check/await internal/check/child internal/check/evidence internal/check/namespace internal/check/ports internal/check/strace internal/check/svg ; golang.org/x/sys github.com/quic-go/quic-go
internal/check/fakecluster:     internal/inspect/survey
conformance/vectors:
internal/check/conformance:     . snowflake internal/core/interval internal/core/lincheck internal/host/steady internal/check/child internal/check/cluster internal/check/ports conformance/vectors
internal/check/chromium:        ; golang.org/x/net
internal/check/trial:           . client snowflake internal/core/lincheck internal/check/await internal/check/chaos internal/check/ports internal/check/evidence internal/check/parallel
internal/check/verify/driver:   . internal/reply internal/check/child internal/check/cluster internal/check/pgserver ; golang.org/x/sys
internal/check/verify:          . internal/core/lincheck internal/check/child internal/check/cluster internal/check/namespace internal/check/ports internal/check/strace internal/check/verify/driver internal/check/wallclock
internal/check/verify/report:   . internal/check/bench internal/check/svg internal/check/verify
internal/check/membership:      ; golang.org/x/sys
internal/check/failover:
internal/check/service:         ; github.com/quic-go/quic-go
internal/check/operation:
internal/check/upgrade:
internal/check/manual:
internal/check/plot:            internal/check/svg
internal/check/evidence/record: internal/check/evidence
internal/check/golden:
internal/check/structure:

release/sbom:
release/licenses:

bench/far:
bench/origin:
bench/proxy:
bench/client:                   . client
bench/locks:                    . client internal/check/cluster
bench/storm:                    internal/check/conformance internal/check/evidence
bench/verify:                   internal/check/evidence internal/check/verify
bench/streams:                  ; golang.org/x/net
bench/thrift:                   snowflake internal/front/thriftrpc ; github.com/HdrHistogram/hdrhistogram-go
interop/goredis:                . ; github.com/redis/go-redis/v9
interop/redislocks:

spec/proof:

clients/go:                     . client snowflake internal/check/conformance

examples/joke:                  internal/check/demoscale
examples/intervals:             . client internal/core/lincheck internal/check/cluster internal/check/svg internal/core/wire

cmd/isotone:                    * ; *
`

// testDependencies are the modules that every _test.go file may import as well;
// it may also import every package of the module.
const testDependencies = "go.uber.org/goleak pgregory.net/rapid github.com/anishathalye/porcupine github.com/cockroachdb/datadriven github.com/redis/go-redis/v9 golang.org/x/net"

// zone is the deterministic zone: the same inputs give the same effects, so the
// simulator replays what production ran. See checkZone.
var zone = []string{"internal/core/interval", "internal/core/timeline", "internal/core/frontier", "internal/core/session", "internal/core/oracle", "internal/core/redislock", "internal/core/route", "internal/core/search", "internal/core/replica", "internal/core/lincheck", "internal/core/wire", "internal/core/journal", "internal/core/sim", "internal/proxy/balance"}

// zoneImports are the imports that no package of the zone may have; "net/"
// stands for all packages below net.
var zoneImports = []string{"sync", "sync/atomic", "os", "os/", "net", "net/", "math/rand", "math/rand/v2", "crypto/rand", "syscall"}

// zoneFuncs are the functions that read the wall clock or wait for it.
var zoneFuncs = map[string]string{
	"time":    "Now Since Until Sleep After AfterFunc NewTimer NewTicker Tick",
	"context": "WithTimeout WithTimeoutCause WithDeadline WithDeadlineCause AfterFunc",
}

// zoneExceptions allow one import in the matching files of one package, and list
// the names that may be used from it.
var zoneExceptions = []struct{ pkg, file, imported, names string }{
	// A generator that is seeded and passed in is an input like any other.
	{"internal/core/sim", "*", "math/rand/v2", "New NewPCG NewChaCha8 Rand PCG ChaCha8 Source"},
	// raft draws election jitter from this variable; the simulator replaces it.
	{"internal/core/sim", "*", "crypto/rand", "Reader"},
	// It parses the text of an address, and touches no network.
	{"internal/core/route", "*", "net/netip", "ParseAddr Addr"},
	// Other threads read the counts of the online checker.
	{"internal/core/lincheck", "online*.go", "sync/atomic", "*"},
	{"internal/core/lincheck", "online*.go", "sync", "Mutex"},
}

const (
	// fileLinesMax and funcLinesMax are limits; CONTRIBUTING.md says what to aim at.
	fileLinesMax = 500
	funcLinesMax = 100
)

// bannedNames are package names that do not say what the package owns.
var bannedNames = strings.Fields("util utils common types helper helpers base misc shared")

func TestDeps_ModuleKeepsTableAndStyle(t *testing.T) {
	fset := token.NewFileSet()
	table := parseTable(t, dependencies)
	for _, src := range parseModule(t, fset) {
		report(t, checkImports(table, src))
		report(t, checkStyle(fset, src))
	}
}

func TestDeps_ZoneIsDeterministic(t *testing.T) {
	fset := token.NewFileSet()
	packages := map[string][]source{}
	for _, src := range parseModule(t, fset) {
		if slices.Contains(zone, src.pkg) && !src.test {
			packages[src.pkg] = append(packages[src.pkg], src)
		}
	}
	found := slices.Sorted(maps.Keys(packages))
	imp := newImporter(t, fset, found)
	for _, pkg := range found {
		report(t, checkZone(fset, imp, packages[pkg]))
	}
}

// TestDeps_TableIsSound checks the table itself: packages import only from lines above,
// so there is no cycle, and nothing in the zone depends on a package outside it.
func TestDeps_TableIsSound(t *testing.T) {
	table := parseTable(t, dependencies)
	line := func(pkg string) int { return strings.Index(dependencies, "\n"+pkg+":") }
	for pkg, row := range table {
		for _, ours := range row.ours {
			if _, ok := table[ours]; !ok && ours != "*" {
				t.Errorf("%s: %s has no line", pkg, ours)
			} else if line(ours) >= line(pkg) {
				t.Errorf("%s: imports %s, which has no line above it", pkg, ours)
			}
			// Mutants are constants, except in the builds of their own tests. The ID
			// generator takes its clock as an argument.
			if slices.Contains(zone, pkg) && !slices.Contains(zone, ours) && ours != "." && ours != "internal/core/mutant" && ours != "snowflake" {
				t.Errorf("%s is in the deterministic zone, %s is not", pkg, ours)
			}
		}
	}
	for _, pkg := range zone {
		if _, ok := table[pkg]; !ok {
			t.Errorf("%s is in the deterministic zone and has no line", pkg)
		}
	}
}
