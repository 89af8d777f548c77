//go:build mutants

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/conformance"
)

// mutant is a deliberate bug of the Go client, and a scenario that notices it: what stands in a file once is replaced. So
// the client itself has no trace of it.
type mutant struct {
	name, file, old, bug string
	scenario             string
}

var mutants = []mutant{
	{"no floor is kept", "internal/core/search/floor.go", "first.Compare(sent) <= 0 && ", "false && ", "an-answer-out-of-order-timestamp"},
	{"no floor is carried", "internal/core/search/floor.go", "answered && above == (isotone.Timestamp{})", "above == (isotone.Timestamp{})", "floor-on-new-connections-timestamp"},
	{"the floor is carried once, though the node refused", "client/conn.go", "	answered := cn.answered.Load()\n", "	answered := cn.answered.Swap(true)\n", "floor-until-an-answer"},
	{"the floor of a range is its first", "client/floor.go", "f.Raise(sent, first, last)", "f.Raise(sent, first, first)", "floor-of-a-range-is-its-last"},
	{"the floor of the options is ignored", "client/client.go", "	c.floor.Last = o.Floor\n", "", "floor-of-the-options"},
	{"the floor of a call is ignored", "client/order.go", "	b.above, b.trace = floor, o.client.traceparent(ctx)\n", "	b.trace = o.client.traceparent(ctx)\n", "floor-of-a-call"},
	{"an answer below the floor of its call is used", "client/floor.go", "b.above == (isotone.Timestamp{}) || b.above.Before(b.first)", "true", "an-answer-that-is-not-above-the-floor-of-a-call"},
	{"rejected answers are not reported", "client/cluster.go", "c.opt.Hooks.Rejected != nil", "false", "rejected-nodes-are-reported"},
	{"what is final is repeated", "client/conn.go", "	case !transient(refusal.Code):\n		cn.pauses = 0\n", "	case !transient(refusal.Code) && refusal.Code == \"\":\n		cn.pauses = 0\n", "final-err-unknown-command-timestamp"},
	{"what may pass is final", "client/exchange.go", "isotone.CodeNoLeader, isotone.CodeOverloaded,", "isotone.CodeNoLeader,", "retried-tryagain-too-many-requests-are-waiting-timestamp"},
	{"an election is final", "client/exchange.go", "isotone.CodeNotLeader, isotone.CodeNoLeader,", "isotone.CodeNotLeader,", "retried-clusterdown-no-leader-is-known-timestamp"},
	{"half a timestamp is one", "client/answer.go", "		if complete || err != nil {\n			return ts, err\n", "		if err != nil && len(text) > 5 {\n			_, _ = r.Discard(len(text))\n			return isotone.Timestamp{Time: 1 << 63}, nil\n		}\n		if complete || err != nil {\n			return ts, err\n", "cut-off-half-a-timestamp"},
	{"a second answer is for the next request", "client/conn.go", secondAnswer, strings.NewReplacer("return errUnexpected", "continue", "return errExtra", "").Replace(secondAnswer), "two-answers-to-one-request-timestamps"},
	{"a second answer is for the next direct call", "client/direct.go", "|| cn.read.Buffered() > 0 {\n		p.discard", "{\n		p.discard", "two-answers-to-one-request-timestamp"},
	{"too few IDs are enough", "client/answer.go", "|| uint64(n) != count {", "{\n		return nil, reply.Malformed(\"IDs\")\n	} else if ids := make([]snowflake.ID, count); uint64(n) < count {\n		for i := range n {\n			line, _ := reply.Line(r)\n			ids[i], _ = parseID(line)\n		}\n		return ids, nil\n	} else if uint64(n) > count {", "malformed-too-few-ids"},
	{"the last of a range need not exist", "client/answer.go", "b.count()-1 > math.MaxUint64-b.first.Index", "false && b.count() > math.MaxUint64", "malformed-the-last-of-a-range-must-exist"},
	{"numbers are rounded as doubles are", "client/answer.go", "	return snowflake.ID(n), nil\n", "	return snowflake.ID(float64(n)), nil\n", "ids-of-63-bits"},
	{"the count is ignored", "client/batch.go", "	b.line = appendRequest(b.buf[:0], b.kind, countOf(state))\n", "	b.line = appendRequest(b.buf[:0], b.kind, 1)\n", "count-timestamps-262144"},
	{"calls of a request get the same numbers", "client/batch.go", "			return b, countOf(state), result\n", "			return b, 0, result\n", "calls-share-requests"},
	{"the mode is ignored", "client/request.go", "	case kindLease, kind64 + kindLease:\n		return \"$5\\r\\nLEASE\\r\\n\"\n", "", "read-modes-timestamp"},
	{"calls get answers from before", "client/direct.go", "	line := cn.line(b)\n", "	if kept := cn.own.first; cn.answered.Load() && b.above == kept {\n		return kept, true, nil\n	} else if cn.answered.Load() {\n		b.above, b.first.Index = isotone.Timestamp{}, kept.Index+1\n		p.put(cn)\n		return b.first, true, nil\n	}\n	line := cn.line(b)\n", "one-after-the-other"},
	{"deadlines are ignored", "client/order.go", "	case <-b.done:\n		return b.err\n	case <-done:\n	}\n	if owns", "	case <-b.done:\n		return b.err\n	}\n	if owns", "a-missed-deadline-timestamps"},
	{"deadlines come early", "client/order.go", "	done := ctx.Done()\n	if done == nil {", "	early, cancel := context.WithTimeout(ctx, 1e8)\n	defer cancel()\n	ctx = early\n	done := ctx.Done()\n	if done == nil {", "a-missed-deadline-timestamps"},
	{"each attempt has the deadline anew", "client/exchange.go", "	ctx, cancel := context.WithCancel(ctx)\n	defer cancel()\n	defer context", "	end, _ := ctx.Deadline()\n	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Hour+time.Until(end))\n	defer cancel()\n	defer context", "a-lease-of-another-cluster"},
	{"errors name no nodes", "client/trouble.go", "	list := slices.Clone(t.list)\n", "	list := slices.Clone(t.list[:0])\n", "a-missed-deadline-names-the-nodes"},
	{"a canceled call ends the others", "client/order.go", "	b.leave()\n	if b.above", "	b.leave()\n	o.fail(o.timeoutError(ctx))\n	if b.above", "a-canceled-call-ends-alone"},
	{"a closed client keeps its connections", "client/router_conn.go", "func (r *router) closeAll() {\n", "func (r *router) closeAll() {\n	return\n", "a-client-is-closed"},
	{"any number of calls may wait", "client/batch.go", "callsOf(state) >= q.callsMax", "false", "more-calls-than-may-wait"},
	{"the cluster is not pinned", "client/cluster.go", "pin := c.Cluster(); pin != id", "pin := c.Cluster(); pin != id && pin == 0", "a-leader-that-comes-back-as-another-cluster"},
	{"each connection pins its cluster", "client/cluster.go", "	if c.pin.CompareAndSwap(0, uint64(id)) {\n", "	if c.pin.Store(uint64(id)); true {\n", "a-leader-that-comes-back-as-another-cluster"},
	{"the cluster of the options is ignored", "client/client.go", "	c.pin.Store(uint64(o.Cluster))\n", "", "only-foreign-nodes-options"},
	{"a node without a cluster serves", "client/cluster.go", "		return isotone.Errorf(isotone.CodeNoLeader, \"the node does not know its cluster yet\")\n", "		return nil\n", "a-node-that-does-not-know-its-cluster"},
	{"MOVED is ignored", "internal/core/search/search.go", "from != s.leader || leader == from ||", "true ||", "moved-is-followed-timestamps"},
	{"redirects are not paced", "internal/core/search/search.go", "s.moves > MovesMax &&", "false &&", "nodes-that-redirect-to-each-other"},
	{"members are not learned", "internal/core/search/search.go", "	s.members = mutant.Pick(mutant.ForgetMembers, nil, list)\n", "	s.members = nil\n", "members-are-learned"},
	{"a client that is refused does not pause", "internal/core/search/search.go", "now + s.jitter.Pause(n.refusals, RefusedPauseMax)", "now", "refused-clients-are-paced"},
	{"a silent leader is trusted", "client/router.go", "	if cn.addr == r.search.Leader() {\n		r.c.trouble", "	if false {\n		r.c.trouble", "a-silent-leader"},
	{"requests are not paced", "client/conn.go", "	timer := time.NewTimer(d)\n", "	timer := time.NewTimer(0)\n", "requests-are-paced"},
	{"the pause of a quota is ignored", "client/backoff.go", "	pause := min(refusal.RetryAfter, quotaPauseMax)\n", "	pause := min(refusal.RetryAfter/4, quotaPauseMax)\n", "quota-pause-timestamps"},
	{"a quota is a missed deadline", "client/client.go", "	if quota != nil {\n", "	if false {\n", "quota-until-the-deadline"},
	{"searches are not paced", "internal/core/search/dial.go", "	return pause/2 + j(pause)\n", "	return pause / 64\n", "questions-are-paced"},
	{"IDs come from the leader only", "client/router.go", "		for _, addr := range r.search.Members() {\n", "		for _, addr := range []string{leader} {\n", "ids-without-a-leader"},
	{"credentials are sent once", "client/credentials.go", "	if c.opt.Credentials == nil {\n", "	if c.opt.Credentials == nil || c.Cluster() != 0 {\n", "credentials-come-first"},
	{"credentials are asked for once", "client/options.go", "	if o.TLS != nil {\n		o.TLS = ", "	if ask := o.Credentials; ask != nil {\n		first, err := ask(context.Background())\n		o.Credentials = func(context.Context) (Credentials, error) { return first, err }\n	}\n	if o.TLS != nil {\n		o.TLS = ", "credentials-that-change"},
	{"credentials that a node has forgotten are refused", "client/conn.go", "		if cn.forgotten(refusal) {\n", "		if false {\n", "credentials-that-a-node-forgets"},
	{"the secret is sent in plaintext", "client/credentials.go", "c.opt.TLS == nil && leavesMachine(conn)", "false", "no-secret-leaves-the-machine-without-tls"},
	{"an answer to AUTH is repeated in errors", "client/credentials.go", "isotone.CodeUnauthorized, \"the node does not answer AUTH with OK\"", "isotone.CodeUnauthorized, \"%s\", v.Text", "an-answer-to-auth-from-something-else"},
	{"certificates are not verified", "client/options.go", "		o.TLS = o.TLS.Clone()\n", "		o.TLS = o.TLS.Clone()\n		o.TLS.InsecureSkipVerify = true\n", "tls-of-another-authority"},
	{"a lease has no end", "client/generator.go", "Lease: got.lease, AheadMax", "Lease: snowflake.Lease{Start: got.lease.Start, End: got.lease.End + 1<<30}, AheadMax", "a-lease-that-cannot-be-renewed"},
	{"each renewal has a session of its own", "client/generator.go", "	command := []string{\"WORKER\", \"LEASE\", g.session,", "	g.session = newSession()\n	command := []string{\"WORKER\", \"LEASE\", g.session,", "a-lease-is-renewed"},
	{"a revoked session is kept", "client/generator.go", "	if last != \"\" && errors.Is(err, isotone.ErrNoWorker) {\n", "	if false {\n", "a-renewal-without-a-free-worker"},
	{"a lease is not released", "client/generator.go", "		err = g.release(ctx, g.grant, used)\n", "		_, _ = ctx, used\n", "a-generator-is-closed"},
	{"a lease is released from its beginning", "client/generator.go", "strconv.FormatInt(used, 10))", "strconv.FormatInt(min(used, of.lease.Start), 10))", "a-generator-is-closed"},
	{"a clock that goes back is waited for", "client/generator.go", "	if err == nil || g.opt.Fixed {\n", "	if true {\n", "a-clock-that-goes-back"},
	{"the later bound is of when the answer came", "internal/core/interval/interval.go", "latest: r.Latest, latestAt: sent.Lo,", "latest: r.Latest, latestAt: received.Hi,", "an-answer-that-is-slow"},
	{"the earlier bound is of when the question left", "internal/core/interval/interval.go", "earliest: r.Earliest, earliestAt: received.Hi,", "earliest: r.Earliest, earliestAt: sent.Lo,", "a-question-that-is-slow"},
	{"limits are ignored", "internal/core/interval/interval.go", "	good = latest <= e.limit\n", "	good = true\n", "a-clock-past-its-limit"},
	{"readings of earlier terms count", "internal/core/interval/interval.go", "	if r.Term < e.term && ", "	if false && ", "an-earlier-term"},
	{"contradictions go unnoticed", "internal/core/interval/interval.go", "		*e = Estimate{}\n		return false\n", "		*e = Estimate{}\n		return true\n", "readings-that-contradict-each-other"},
	{"contradictions are forgotten after a second", "internal/core/interval/rate.go", "RateWindow = 10 * time.Second", "RateWindow = time.Second", "readings-that-contradict-each-other"},
	{"any reading is the answer", "client/clock_ask.go", "		if got == nonce {\n", "		if got == nonce || true {\n", "answers-to-other-questions"},
	{"a reading of any cluster counts", "client/clock_ask.go", "pin := k.c.Cluster(); pin != id", "pin := k.c.Cluster(); pin == 0", "a-reading-of-another-cluster"},
	{"a node that fails is not replaced", "client/clock_sync.go", "	s.usual = nil\n	if s.searching {\n", "	if !s.searching {\n", "a-node-of-a-clock-ends"},
	{"refusals are outages", "client/clock_sync.go", "		if src.why == nil {\n", "		if true {\n", "a-clock-refused-forbidden"},
	{"questions are not paced", "client/clock_sync.go", "max(length/syncsPerLimit, syncMin)", "max(length/syncsPerLimit/50, syncMin)", "questions-of-a-clock-are-paced"},
	{"timestamps follow narrower bounds", "internal/core/interval/generator.go", "		at = max(at, last+1)\n", "		at = max(at, min(at, last+1))\n", "timestamps-go-on-from-the-last"},
	{"indexes are not above those of the oracle", "client/clock.go", "binary.BigEndian.Uint64(random[:]) | interval.IndexMin", "binary.BigEndian.Uint64(random[:]) &^ interval.IndexMin", "a-clock"},
	{"waits end at the later bound", "internal/core/interval/generator.go", "return mutant.Pick(mutant.WaitOnLatest, bounds.Latest, bounds.Earliest)", "return mutant.Pick(mutant.WaitOnLatest, bounds.Earliest, bounds.Latest)", "a-clock-waits-until-a-timestamp-is-past"},
	{"waits outlive their clock", "client/clock_wait.go", "	case <-k.ended:\n", "	case <-make(chan struct{}):\n", "a-clock-is-closed"},
}

// secondAnswer is where the client looks whether an answer is the only one.
const secondAnswer = `		if b == nil {
			return errUnexpected
		}
		err := readAnswer(cn.read, b)
		refusal, refused := err.(*isotone.Error)
		if err != nil && !refused {
			return err
		}
		if cn.read.Buffered() > 0 {
			// It would be taken for the answer to the next request.
			return errExtra
		}
`

// patience is short: none of the client's own times is longer. A mutant that is slow only, and fails for that, is another bug.
const patience = 8 * time.Second

// hurries are bugs of a client that asks too often. Their scenarios count what comes within a time, and a busy machine slows the client down.
var hurries = []string{"a client that is refused does not pause", "requests are not paced", "searches are not paced", "questions are not paced"}

// playsMax is how often a scenario may pass before a bug that hurries counts as one that it does not notice.
const playsMax = 5

// TestMutants_AreNoticed: each bug makes its scenario fail.
func TestMutants_AreNoticed(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	right, command := programs(t, root, mutants, "build", "./clients/go")
	passes(t, mutants, right)
	for _, m := range mutants {
		t.Run(m.testName(), func(t *testing.T) {
			t.Parallel()
			m.isNoticed(t, command(t, m)...)
		})
	}
}

func (m mutant) testName() string { return strings.ReplaceAll(m.name, " ", "-") }

// isNoticed plays the scenario to a driver with the bug. It has to fail for what the client does. A driver that does not begin, or dies, has
// another bug.
func (m mutant) isNoticed(t *testing.T, driver ...string) {
	t.Helper()
	list, err := conformance.Select(m.scenario)
	if err != nil {
		t.Fatal(err)
	}
	var o conformance.Outcome
	plays := 1
	if slices.Contains(hurries, m.name) {
		plays = playsMax
	}
	for range plays {
		report, err := conformance.Run(t.Context(), conformance.Suite{Driver: driver, Scenarios: list, Patience: patience})
		if err != nil {
			t.Fatal(err)
		}
		o = report.Outcomes[0]
		t.Log(o.Took, o.Faults, o.Skipped)
		if !o.Passed || o.Skipped != "" {
			break
		}
	}
	switch {
	case strings.HasPrefix(o.Skipped, "the client has no"):
		t.Error(o.Skipped)
	case o.Skipped != "":
		t.Skip(o.Skipped) // this machine lacks what the scenario needs: an address that is not of loopback
	case o.Passed:
		t.Errorf("%s does not notice that %s", m.scenario, m.name)
	case slices.ContainsFunc(o.Faults, func(f conformance.Fault) bool { return f.Rule == "driver" }):
		t.Errorf("the driver fails, not the client: %v", o.Faults)
	}
}

// replaced returns the text of the file with the bug.
func (m mutant) replaced(t *testing.T, root string) string {
	t.Helper()
	text := read(t, filepath.Join(root, filepath.FromSlash(m.file)))
	if n := strings.Count(text, m.old); n != 1 {
		t.Fatalf("%s has %q %d times, want once: adapt the mutant", m.file, m.old, n)
	}
	return strings.Replace(text, m.old, m.bug, 1)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
