package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/isotone/isotone/internal/check/pgserver"
	"github.com/isotone/isotone/txn/pgstore"
)

// pairTimeout bounds what a pair of servers does, far above what it needs.
const pairTimeout = time.Minute

// pair is a Postgres with a synchronous replica.
type pair struct {
	t                *testing.T
	primary, replica *pgserver.Server
}

// pairServers are the servers of all pairs, one after the other: initdb takes longer than any test.
var pairServers struct {
	once             sync.Once
	err              error
	primary, replica *pgserver.Server
	template         string // the data that every pair begins with
}

func removePair() {
	for _, s := range []*pgserver.Server{pairServers.primary, pairServers.replica} {
		if s != nil {
			s.Remove()
		}
	}
}

func makePair() error {
	ctx, cancel := context.WithTimeout(context.Background(), pairTimeout)
	defer cancel()
	var err error
	if pairServers.primary, err = pgserver.New(ctx); err != nil {
		return err
	}
	if pairServers.replica, err = pgserver.New(ctx); err != nil {
		return err
	}
	pairServers.template = filepath.Join(pairServers.primary.Dir(), "template")
	return command("cp", "-a", pairServers.primary.Data(), pairServers.template)
}

func command(args ...string) error {
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%q: %w\n%s", args, err, out)
	}
	return nil
}

// newPair starts both without any data. It skips the test if there is no Postgres.
func newPair(t *testing.T) *pair {
	t.Helper()
	pairServers.once.Do(func() { pairServers.err = makePair() })
	if pairServers.err != nil {
		pgserver.Unavailable(t, pairServers.err)
	}
	p := &pair{t: t, primary: pairServers.primary, replica: pairServers.replica}
	t.Cleanup(p.primary.Stop)
	t.Cleanup(p.replica.Stop)
	for _, s := range []*pgserver.Server{p.primary, p.replica} {
		err := errors.Join(command("rm", "-rf", s.Data()), command("cp", "-a", pairServers.template, s.Data()))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(p.replica.Data(), "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p.startPrimary()
	p.startReplica()
	p.awaitSync()
	return p
}

func (p *pair) start(s *pgserver.Server, settings ...string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), pairTimeout)
	defer cancel()
	pool := p.pool(s)
	defer pool.Close()
	if err := s.Start(ctx, pool.Ping, append(settings, "listen_addresses=")...); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) startPrimary() {
	p.t.Helper()
	p.start(p.primary, "synchronous_standby_names=replica", "autovacuum=off")
}

func (p *pair) startReplica() {
	p.t.Helper()
	p.start(p.replica, "primary_conninfo=host="+p.primary.Dir()+" user=tester application_name=replica", "wal_retrieve_retry_interval=50ms")
}

// pool returns a pool of connections to servers, of which it takes one that can be written to.
func (p *pair) pool(servers ...*pgserver.Server) *pgxpool.Pool {
	p.t.Helper()
	var dirs []string
	for _, s := range servers {
		dirs = append(dirs, s.Dir())
	}
	url := "host=" + strings.Join(dirs, ",") + " user=tester dbname=postgres pool_max_conns=16 connect_timeout=10"
	if len(dirs) > 1 {
		url += " target_session_attrs=read-write"
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		p.t.Fatal(err)
	}
	config.ConnConfig.OnNotice = pgstore.OnNotice
	pool, err := pgxpool.NewWithConfig(p.t.Context(), config)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(pool.Close)
	return pool
}

// await waits until a query at a server returns true.
func (p *pair) await(s *pgserver.Server, query string, args ...any) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), pairTimeout)
	defer cancel()
	pool := p.pool(s)
	defer pool.Close()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ok := false; !ok; <-tick.C {
		if err := pool.QueryRow(ctx, query, args...).Scan(&ok); err != nil {
			p.t.Fatalf("%s: %v", query, err)
		}
	}
}

func (p *pair) awaitSync() {
	p.t.Helper()
	p.await(p.primary, "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'")
}

// crash ends a server at once, as SIGKILL of all of its processes would.
func (p *pair) crash(s *pgserver.Server) {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Data(), "postmaster.pid"))
	if err != nil {
		p.t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGQUIT)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	s.Stop()
}

// failOver ends the primary and promotes the replica, which may have been stopped.
func (p *pair) failOver(stopped bool) {
	p.t.Helper()
	p.crash(p.primary)
	if stopped {
		p.startReplica()
	}
	p.await(p.replica, "SELECT pg_promote()")
}

// store returns a store of the server.
func (p *pair) store(s ...*pgserver.Server) *pgstore.Store {
	p.t.Helper()
	store, err := pgstore.New(p.pool(s...), pgstore.Options{Schema: "pair"})
	if err != nil {
		p.t.Fatal(err)
	}
	return store
}

func (p *pair) create() *pgstore.Store {
	p.t.Helper()
	store := p.store(p.primary)
	if err := store.Create(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	return store
}
