package replica_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/core/replica"
	"github.com/isotone/isotone/internal/host/storage"
)

// world is some replicas on data directories of their own: they write the golden ones,
// and go on from them.
type world struct {
	t        testing.TB
	machines map[uint64]*machine
	mono     time.Duration
	// snapshotEvery is that of the replicas to start.
	snapshotEvery uint64
	// workers is how many workers the replicas to start want.
	workers int
}

type machine struct {
	*replica.Replica
	dir       string
	store     *storage.Store
	found     storage.Recovered
	inbox     []*raftpb.Message
	hellos    []replica.Hello
	written   *replica.Write
	clocks    []replica.PeerClock
	answered  map[uint64]*isotone.Error // by token; nil: with timestamps
	proposals []*raftpb.Entry           // all that it ever wrote
}

func newWorld(t testing.TB) *world {
	return &world{t: t, machines: map[uint64]*machine{}, snapshotEvery: 16}
}

// start opens a directory, or creates it, and runs a replica on it.
func (w *world) start(id uint64, dir string, founders []oracle.Member) *machine {
	w.t.Helper()
	store, found, err := storage.Open(storage.Options{Dir: dir, NodeID: id, Incarnation: 0xD1 + id<<8})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = store.Close() })
	r, err := replica.New(replica.Config{
		Self: replica.Hello{
			ClusterID: found.Identity.ClusterID, NodeID: id, Incarnation: found.Identity.Incarnation,
			Boot: found.Identity.Boot, Session: id<<8 + found.Identity.Boot, ClientAddr: "10.0.0.9:8080", PeerAddr: fmt.Sprintf("peer%d:1", id),
		},
		Founders: founders, HardState: found.HardState, Snapshot: found.Snapshot, Entries: slices.Clone(found.Entries),
		EpochTicks: 2, EpochInterval: 2 * tick, TickInterval: tick,
		ReservationsMissedMax: 100, QueueMax: 100, RequestTicks: 500, SnapshotEvery: w.snapshotEvery,
		LeaseMillis: 10_000, Space: space, FixedWorker: oracle.AnyWorker, Workers: w.workers, Log: quiet{},
	})
	if err != nil {
		w.t.Fatalf("%s: %v", dir, err)
	}
	m := &machine{Replica: r, dir: dir, store: store, found: found, answered: map[uint64]*isotone.Error{}}
	w.machines[id] = m
	w.turn(m, &replica.Input{})
	return m
}

// stop ends a replica and returns its data file as it was while it ran: what a crash
// leaves.
func (w *world) stop(id uint64) []byte {
	w.t.Helper()
	m := w.machines[id]
	image, err := os.ReadFile(filepath.Join(m.dir, storage.FileName))
	if err == nil {
		err = m.store.Close()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	delete(w.machines, id)
	for _, o := range w.list() {
		w.turn(o, &replica.Input{Gone: []uint64{id}})
	}
	return image
}

// list returns the machines in the order of their IDs.
func (w *world) list() []*machine {
	var list []*machine
	for _, id := range slices.Sorted(maps.Keys(w.machines)) {
		list = append(list, w.machines[id])
	}
	return list
}

// greet introduces all to each other. None may refuse another.
func (w *world) greet() {
	w.t.Helper()
	for _, m := range w.list() {
		for _, o := range w.list() {
			if m == o {
				continue
			}
			if r := m.Admit(o.Hello()); r != nil {
				w.t.Fatalf("node %d refuses node %d: %v", m.Hello().NodeID, o.Hello().NodeID, r)
			}
			w.turn(m, &replica.Input{Hellos: []replica.Hello{o.Hello()}})
		}
	}
}

// turn steps one replica and saves what it writes.
func (w *world) turn(m *machine, in *replica.Input) {
	w.t.Helper()
	in.Mono, in.Now, in.Clocks = w.mono, goldenStart+uint64(w.mono), m.clocks
	m.clocks = nil
	e := m.Step(in)
	if e.Fatal != nil {
		w.t.Fatal(e.Fatal)
	}
	for _, message := range e.Send {
		if to := w.machines[message.GetTo()]; to != nil {
			to.inbox = append(to.inbox, message)
		}
	}
	for _, a := range e.Answers {
		m.answered[a.Token] = a.Err
	}
	if e.SendClock {
		for _, o := range w.list() {
			o.clocks = append(o.clocks, replica.PeerClock{ID: m.Hello().NodeID, Wall: int64(in.Now)})
		}
	}
	if e.Announce {
		for _, o := range w.list() {
			if h := m.Hello(); o != m && o.Admit(h) == nil {
				o.hellos = append(o.hellos, h)
			}
		}
	}
	if write := e.Write; write != nil {
		err := m.store.Save(storage.Write{
			HardState: write.HardState, Entries: write.Entries, Snapshot: write.Snapshot, Compact: write.Compact, ClusterID: write.ClusterID,
		})
		if err != nil {
			w.t.Fatal(err)
		}
		m.written, m.proposals = write, append(m.proposals, write.Entries...)
	}
}

// settle delivers messages and writes until nothing is left to do.
func (w *world) settle() {
	w.t.Helper()
	for busy := true; busy; {
		busy = false
		for _, m := range w.list() {
			in := &replica.Input{Messages: m.inbox, Hellos: m.hellos, Persisted: m.written}
			m.inbox, m.hellos, m.written = nil, nil, nil
			if len(in.Messages)+len(in.Hellos) > 0 || in.Persisted != nil {
				busy = true
				w.turn(m, in)
			}
		}
	}
}

func (w *world) tick(count int) {
	w.t.Helper()
	for range count {
		w.mono += tick
		for _, m := range w.list() {
			w.turn(m, &replica.Input{Ticks: 1})
		}
		w.settle()
	}
}

// leader ticks until one serves.
func (w *world) leader() *machine {
	w.t.Helper()
	for range 500 {
		for _, m := range w.list() {
			if m.Status().Serving {
				return m
			}
		}
		w.tick(1)
	}
	w.t.Fatal("nobody serves after 500 ticks")
	return nil
}

// timestamp asks whoever leads for one.
func (w *world) timestamp() isotone.Timestamp {
	w.t.Helper()
	m, ranges := w.leader(), make([]isotone.Range, 1)
	w.turn(m, &replica.Input{Requests: []replica.Request{{Token: 1, Mode: isotone.ReadQuorum, Counts: []uint64{1}, Ranges: ranges}}})
	w.settle()
	if err, ok := m.answered[1]; !ok || err != nil {
		w.t.Fatalf("no timestamp: %v", err)
	}
	delete(m.answered, 1)
	return ranges[0].First
}
