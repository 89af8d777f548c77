package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
	"github.com/isotone/isotone/internal/check/testnode"
	isotonev1 "github.com/isotone/isotone/proto/isotone/v1"
)

type (
	connectRequest  = isotonev1.SessionsConnectRequest
	connectResponse = isotonev1.SessionsConnectResponse
)

// connection is a stream of Sessions.Connect. Each request has the next number.
type connection struct {
	*testing.T
	grpc.BidiStreamingClient[connectRequest, connectResponse]
	close  context.CancelFunc
	id     uint64
	queued []*connectResponse // messages that came before an answer
}

func connect(t *testing.T, conn *grpc.ClientConn) *connection {
	t.Helper()
	ctx, cancel := context.WithCancel(soon(t))
	t.Cleanup(cancel)
	st, err := isotonev1.NewSessionsClient(conn).Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &connection{T: t, BidiStreamingClient: st, close: cancel}
}

func (c *connection) receives() *connectResponse {
	c.Helper()
	m, err := c.Recv()
	if err != nil {
		c.Fatal(err)
	}
	return m
}

// asks returns the answer to a request.
func (c *connection) asks(q *connectRequest) *connectResponse {
	c.Helper()
	c.id++
	q.Id = c.id
	if err := c.Send(q); err != nil {
		c.Fatal(err)
	}
	for {
		switch m := c.receives(); m.What.(type) {
		case *isotonev1.SessionsConnectResponse_Answer, *isotonev1.SessionsConnectResponse_Error:
			if m.Id != c.id {
				c.Fatalf("an answer to request %d, want %d: %v", m.Id, c.id, m)
			}
			return m
		default:
			c.queued = append(c.queued, m)
		}
	}
}

// does returns the answer to a request that succeeds.
func (c *connection) does(q *connectRequest) *isotonev1.SessionAnswer {
	c.Helper()
	m := c.asks(q)
	if m.GetAnswer() == nil {
		c.Fatalf("%v: %v", q, m)
	}
	return m.GetAnswer()
}

// fails has a request fail for a reason.
func (c *connection) fails(q *connectRequest, code codes.Code, reason string) {
	c.Helper()
	m := c.asks(q)
	if m.GetError() == nil {
		c.Fatalf("%v: %v, want %s", q, m, reason)
	}
	wants(c.T, status.ErrorProto(m.GetError()), code, reason)
}

// hears returns the next message.
func (c *connection) hears() *connectResponse {
	c.Helper()
	if len(c.queued) > 0 {
		m := c.queued[0]
		c.queued = c.queued[1:]
		return m
	}
	return c.receives()
}

// isGranted returns the token of the lock that the session hears of next.
func (c *connection) isGranted(name string) uint64 {
	c.Helper()
	m := c.hears()
	for m.GetQueued() != nil {
		m = c.hears()
	}
	if g := m.GetGranted(); g.GetName() != name || g.GetToken() == 0 {
		c.Fatalf("%v, want %s to be granted", m, name)
	}
	return m.GetGranted().Token
}

const ttlMs = 60_000

func bind(session uint64, epoch uint32, groups ...*isotonev1.SessionGroup) *connectRequest {
	return &connectRequest{Action: &isotonev1.SessionsConnectRequest_Bind{Bind: &isotonev1.SessionBind{
		Session: session, Epoch: epoch, TtlMs: ttlMs, Label: "a test", Groups: groups,
	}}}
}

// group is one in which a session has no stamps.
func group(name string) *isotonev1.SessionGroup {
	return &isotonev1.SessionGroup{Name: name, Low: append(make([]byte, 15), 1), High: make([]byte, 16)}
}

func acquire(name string, try bool) *connectRequest {
	return &connectRequest{Action: &isotonev1.SessionsConnectRequest_Acquire{Acquire: &isotonev1.LockAcquire{Name: name, Try: try, Value: "a value"}}}
}

func release(name string, token uint64) *connectRequest {
	return &connectRequest{Action: &isotonev1.SessionsConnectRequest_Release{Release: &isotonev1.LockRelease{Name: name, Token: token}}}
}

func cancel(name string) *connectRequest {
	return &connectRequest{Action: &isotonev1.SessionsConnectRequest_Cancel{Cancel: &isotonev1.LockCancel{Name: name}}}
}

func take(q *isotonev1.StampsTake) *connectRequest {
	return &connectRequest{Action: &isotonev1.SessionsConnectRequest_Take{Take: q}}
}

func closing() *connectRequest {
	return &connectRequest{Action: &isotonev1.SessionsConnectRequest_Close{Close: &isotonev1.SessionClose{}}}
}

// startLeader runs a node that leads.
func startLeader(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn := dial(t, testnode.Guarded(t, "", nil).Client)
	await.Until(t, "the node leads", func() bool {
		_, err := isotonev1.NewLocksClient(conn).Get(soon(t), &isotonev1.LocksGetRequest{Name: "x"})
		return err == nil
	})
	return conn
}

func TestSessions_ALockGoesFromOneStreamToAnother(t *testing.T) {
	conn := startLeader(t)
	locks := isotonev1.NewLocksClient(conn)
	watch, err := locks.Watch(soon(t), &isotonev1.LocksWatchRequest{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := watch.Recv(); err != nil || m.Holder != nil {
		t.Fatalf("nobody holds the lock: %v, %v", m, err)
	}
	a, b := connect(t, conn), connect(t, conn)
	a.does(bind(1, 1))
	b.does(bind(2, 1))
	a.does(acquire("x", false))
	first := a.isGranted("x")
	if holds := a.does(acquire("x", false)).Holds; len(holds) != 1 || holds[0].Token != first {
		t.Errorf("acquired twice: %v", holds)
	}
	b.fails(acquire("x", true), codes.Aborted, "locked")
	b.does(acquire("x", false))
	if m := b.hears(); m.GetQueued().GetName() != "x" || len(m.GetQueued().GetTicket()) != 16 {
		t.Errorf("%v, want a place in the queue", m)
	}
	if m, err := locks.Get(soon(t), &isotonev1.LocksGetRequest{Name: "x"}); err != nil || m.Holder.GetToken() != first || m.Holder.Value != "a value" || m.Holder.Label != "a test" || len(m.Holder.Session) != 16 {
		t.Errorf("%v, %v", m, err)
	}
	a.does(release("x", first))
	for m := a.hears(); m.GetReleased().GetToken() != first; m = a.hears() {
	}
	second := b.isGranted("x")
	if second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	for m, err := watch.Recv(); m.GetHolder().GetToken() != second; m, err = watch.Recv() {
		if err != nil {
			t.Fatal(err)
		}
	}
	a.does(acquire("x", false))
	a.does(cancel("x"))
	for m := a.hears(); m.GetReleased() == nil; m = a.hears() {
	}
	b.does(closing())
	for m, err := watch.Recv(); m.GetHolder() != nil; m, err = watch.Recv() {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestSessions_ABrokenStreamHasASuccessor, which finds what the session holds.
func TestSessions_ABrokenStreamHasASuccessor(t *testing.T) {
	conn := startLeader(t)
	first := connect(t, conn)
	first.does(bind(1, 1))
	first.does(acquire("x", false))
	token := first.isGranted("x")
	first.close()
	connect(t, conn).fails(bind(1, 1), codes.FailedPrecondition, "not_bound")
	second := connect(t, conn)
	if holds := second.does(bind(1, 2)).Holds; len(holds) != 1 || holds[0].Name != "x" || holds[0].Token != token {
		t.Errorf("holds: %v", holds)
	}
	third := connect(t, conn)
	third.does(bind(1, 3))
	if m := second.hears(); m.GetSuperseded() == nil {
		t.Errorf("%v, want it to be superseded", m)
	}
	second.fails(&connectRequest{}, codes.FailedPrecondition, "not_bound")
	third.does(&connectRequest{})
}

// TestSessions_AStreamEndsAfterTheLastAnswer, so that a program may send all that it has to say at once.
func TestSessions_AStreamEndsAfterTheLastAnswer(t *testing.T) {
	c := connect(t, startLeader(t))
	for i, q := range []*connectRequest{bind(1, 1), acquire("x", true), {}} {
		q.Id = uint64(i)
		if err := c.Send(q); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.CloseSend(); err != nil {
		t.Fatal(err)
	}
	answers := 0
	for {
		m, err := c.Recv()
		if err == io.EOF {
			break
		}
		if err != nil || m.GetError() != nil {
			t.Fatalf("%v, %v", m, err)
		}
		if m.GetAnswer() != nil {
			answers++
		}
	}
	if answers != 3 {
		t.Errorf("%d answers, want 3", answers)
	}
}

func TestSessions_AFrontierFollowsItsWriter(t *testing.T) {
	conn := startLeader(t)
	c, frontiers := connect(t, conn), isotonev1.NewFrontiersClient(conn)
	if f := c.does(bind(1, 1, group("orders"))).Frontiers; len(f) != 1 || f[0].Group != "orders" || len(f[0].Stamp) != 16 {
		t.Errorf("frontiers: %v", f)
	}
	seal := c.hears().GetSeal() // what earlier leaders may have let be written
	if seal.GetGroup() != "orders" || len(seal.Stamp) != 16 {
		t.Fatalf("seal: %v", seal)
	}
	c.does(&connectRequest{Sealed: []*isotonev1.GroupStamp{seal}})
	taken := c.does(take(&isotonev1.StampsTake{Group: "orders", Count: proto.Uint64(3), Ahead: true}))
	first := taken.GetTaken().GetWide()
	if taken.GetTaken().GetCount() != 3 || len(first) != 16 || bytes.Compare(taken.Bound, first) <= 0 {
		t.Fatalf("taken: %v", taken)
	}
	if m, err := frontiers.Get(soon(t), &isotonev1.FrontiersGetRequest{Group: "orders"}); err != nil || bytes.Compare(m.Frontier, first) >= 0 {
		t.Errorf("%v, %v; a write at %x may still come", m, err, first)
	}
	watch, err := frontiers.Watch(soon(t), &isotonev1.FrontiersWatchRequest{Group: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	// All is decided that the session may have written.
	above := binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(taken.Bound)+1)
	c.does(&connectRequest{Lows: []*isotonev1.GroupStamp{{Group: "orders", Stamp: append(above, make([]byte, 8)...)}}})
	for {
		m, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Compare(m.Frontier, first) > 0 {
			break
		}
	}
	small := c.does(take(&isotonev1.StampsTake{Group: "orders", Form: isotonev1.Form_FORM_U64}))
	if small.GetTaken().GetU64() == 0 || small.GetTaken().GetCount() != 1 || small.Bound != nil {
		t.Errorf("taken: %v", small)
	}
}

// TestSessions_RefuseWhatIsWrong: the stream goes on.
func TestSessions_RefuseWhatIsWrong(t *testing.T) {
	conn := startLeader(t)
	c := connect(t, conn)
	c.fails(&connectRequest{}, codes.FailedPrecondition, "not_bound")
	wrong := bind(1, 1)
	wrong.GetBind().TtlMs = 1
	many := bind(1, 1)
	for i := range 17 {
		many.GetBind().Groups = append(many.GetBind().Groups, group(fmt.Sprint(i)))
	}
	for _, q := range []*connectRequest{bind(0, 1), wrong, many, bind(1, 1, group("")), bind(1, 1, &isotonev1.SessionGroup{Name: "a"})} {
		c.fails(q, codes.InvalidArgument, "invalid_argument")
	}
	c.does(bind(1, 1))
	for _, q := range []*connectRequest{
		bind(2, 1), acquire("", false), acquire(string(make([]byte, 129)), false), take(&isotonev1.StampsTake{}), take(&isotonev1.StampsTake{Group: "unbound"}),
		take(&isotonev1.StampsTake{Group: "g", Count: proto.Uint64(0)}), {Lows: []*isotonev1.GroupStamp{{Group: "g", Stamp: []byte("short")}}},
	} {
		c.fails(q, codes.InvalidArgument, "invalid_argument")
	}
	c.does(&connectRequest{})
	_, err := isotonev1.NewLocksClient(conn).Get(soon(t), &isotonev1.LocksGetRequest{})
	wants(t, err, codes.InvalidArgument, "invalid_argument")
	_, err = isotonev1.NewFrontiersClient(conn).Get(soon(t), &isotonev1.FrontiersGetRequest{})
	wants(t, err, codes.InvalidArgument, "invalid_argument")
}

func TestSessions_AreForThoseWithTheRoles(t *testing.T) {
	n := testnode.Guarded(t, `{"users": {
		"locker": {"roles": ["locks"], "names": ["jobs/"], "secrets": ["HASH"]},
		"writer": {"roles": ["frontier"], "names": ["jobs/"], "secrets": ["HASH"]},
		"other": {"roles": ["timestamps"], "secrets": ["HASH"]}}}`, nil)
	as := func(user string) *grpc.ClientConn {
		return dial(t, n.Client, grpc.WithPerRPCCredentials(authorization(rig.Bearer(user, rig.Secret))))
	}
	locks := func(user, name string) error {
		_, err := isotonev1.NewLocksClient(as(user)).Get(soon(t), &isotonev1.LocksGetRequest{Name: name})
		return err
	}
	frontiers := func(user, name string) error {
		_, err := isotonev1.NewFrontiersClient(as(user)).Get(soon(t), &isotonev1.FrontiersGetRequest{Group: name})
		return err
	}
	await.Until(t, "the node leads", func() bool { return locks("locker", "jobs/a") == nil && frontiers("writer", "jobs/a") == nil })
	const denied, reason = codes.PermissionDenied, "forbidden"
	for _, err := range []error{locks("locker", "a"), locks("writer", "jobs/a"), locks("other", "jobs/a"), frontiers("writer", "a"), frontiers("locker", "jobs/a"), frontiers("other", "jobs/a")} {
		wants(t, err, denied, reason)
	}
	_, err := connect(t, as("other")).Recv()
	wants(t, err, denied, reason)
	stamps := []*isotonev1.GroupStamp{{Group: "jobs/a", Stamp: make([]byte, 16)}}

	locker := connect(t, as("locker"))
	locker.fails(bind(1, 1, group("jobs/a")), denied, reason)
	locker.does(bind(1, 1))
	locker.fails(acquire("a", false), denied, reason)
	locker.fails(take(&isotonev1.StampsTake{Group: "jobs/a"}), denied, reason)
	locker.fails(&connectRequest{Lows: stamps, Action: acquire("jobs/a", false).Action}, denied, reason)
	locker.does(acquire("jobs/a", false))

	writer := connect(t, as("writer"))
	writer.fails(bind(2, 1, group("a")), denied, reason)
	writer.does(bind(2, 1, group("jobs/a")))
	writer.fails(acquire("jobs/a", false), denied, reason)
	writer.does(&connectRequest{Sealed: stamps})
	writer.does(take(&isotonev1.StampsTake{Group: "jobs/a"}))

	n.Users.Write(`{"users": {"locker": {"roles": ["ids"], "secrets": ["HASH"]}}}`)
	for err = nil; err == nil; { // after messages
		_, err = locker.Recv()
	}
	wants(t, err, denied, reason)
}

// TestSessions_AreOfMembers: a server without them says so.
func TestSessions_AreOfMembers(t *testing.T) {
	eachServer(t, func(t *testing.T, s *site) {
		conn := dial(t, s.addr)
		_, err := connect(t, conn).Recv()
		wants(t, err, codes.Unimplemented, "not_found")
		_, err = isotonev1.NewLocksClient(conn).Get(soon(t), &isotonev1.LocksGetRequest{Name: "x"})
		wants(t, err, codes.Unimplemented, "not_found")
	})
}

// TestSessions_QuotaOfAUser: what is new is refused, and neither what there is nor what others ask for.
func TestSessions_QuotaOfAUser(t *testing.T) {
	list := func(sessions, locks int) string {
		user := fmt.Sprintf(`{"roles": ["locks"], "secrets": ["HASH"], "limits": {"sessions": %d, "locks": %d}}`, sessions, locks)
		return `{"users": {"shop": ` + user + `, "other": ` + user + `}}`
	}
	n := testnode.Guarded(t, list(2, 1), nil)
	as := func(user string) *grpc.ClientConn {
		return dial(t, n.Client, grpc.WithPerRPCCredentials(authorization(rig.Bearer(user, rig.Secret))))
	}
	shop, others := as("shop"), as("other")
	await.Until(t, "the node leads", func() bool {
		_, err := isotonev1.NewLocksClient(shop).Get(soon(t), &isotonev1.LocksGetRequest{Name: "x"})
		return err == nil
	})
	a, b, c, other := connect(t, shop), connect(t, shop), connect(t, shop), connect(t, others)
	a.does(bind(1, 1))
	b.does(bind(2, 1))
	c.fails(bind(3, 1), codes.ResourceExhausted, "quota_exceeded")
	other.does(bind(4, 1))
	a.does(acquire("x", false))
	token := a.isGranted("x")
	a.fails(acquire("y", true), codes.ResourceExhausted, "quota_exceeded")
	other.does(acquire("y", false))
	other.isGranted("y")

	n.Users.Write(list(1, 1))
	await.Until(t, "the list is in force", func() bool {
		message := c.asks(bind(3, 1)).GetError().GetMessage()
		return strings.Contains(message, "user shop may have 1 sessions")
	})
	again := connect(t, shop)
	if holds := again.does(bind(1, 2)).Holds; len(holds) != 1 || holds[0].Token != token {
		t.Errorf("%v, want the lock with token %d", holds, token)
	}
	again.does(release("x", token))
	for m := again.hears(); m.GetReleased().GetToken() != token; m = again.hears() {
	}
	b.does(acquire("x", false))
	b.isGranted("x")
	b.does(closing())
	again.does(closing())
	c.does(bind(3, 1))
}
