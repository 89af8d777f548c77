package pgstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/isotone/isotone/txn/internal/mutant"
)

var (
	// ErrNotDurable means that the session's synchronous_commit is off, or is local though there are
	// synchronous replicas. Nothing was written.
	ErrNotDurable = errors.New("synchronous_commit is off, or is local though synchronous_standby_names is set, by which answered writes would be lost: want on")
	// ErrWarningsUnseen means that the store does not learn of warnings, as when the pool was made without [OnNotice],
	// or client_min_messages is stricter than warning. Nothing was written.
	ErrWarningsUnseen = errors.New("warnings of the server do not arrive, among them those that an answered write may be lost: make the pool with config.ConnConfig.OnNotice = pgstore.OnNotice, and set client_min_messages to warning or less")
	// ErrWaitCanceled means that somebody has canceled the wait for the synchronous replicas.
	ErrWaitCanceled = errors.New("the wait for the synchronous replicas was canceled")
	// ErrServerChanged means that a read was answered by one server, and its durability by another one.
	ErrServerChanged = errors.New("another server has taken over meanwhile")
)

// Marks in the custom data of a connection: OnNotice leaves warnedKey, and heardKey is there if a warning has arrived.
const (
	warnedKey = "isotone/txn/pgstore: a warning"
	heardKey  = "isotone/txn/pgstore: warnings arrive"
)

// OnNotice has a store notice that the wait of a write for the synchronous replicas was canceled, for instance
// by pg_cancel_backend. Postgres then reports success, with a warning. Set it in the configuration of the
// pool, before the pool is made:
//
//	config.ConnConfig.OnNotice = pgstore.OnNotice
//
// A function of your own may call it. Without it, all calls of the store return [ErrWarningsUnseen].
func OnNotice(conn *pgconn.PgConn, n *pgconn.Notice) {
	// The warning has no code of its own, and may be in any language. No statement of a store causes
	// another one.
	if n.SeverityUnlocalized == "WARNING" {
		conn.CustomData()[warnedKey] = true
	}
}

// state is what a statement says of the server, beside its result.
type state struct {
	durable bool      // what the session commits is as durable as the server can make it
	server  time.Time // when it was started
	// In the snapshot of the statement, all transactions below xmin have ended, and none from xmax on. Both
	// are 0 without synchronous replicas.
	xmin, xmax int64
}

func (s *state) targets() []any { return []any{&s.durable, &s.server, &s.xmin, &s.xmax} }

// outcome is what statements that write say. Only if they have written something, their commit waits for the
// replicas.
type outcome struct {
	state
	own  int64 // the transaction; 0 if it has written nothing
	rows int
}

func (o *outcome) targets() []any { return append(o.state.targets(), &o.own, &o.rows) }

// replicated is what the synchronous replicas of a server are known to have.
type replicated struct {
	mu       sync.Mutex
	server   time.Time
	below    int64         // all transactions below it that have committed
	started  int           // how many barriers have begun
	finished int           // the last of them that was successful
	barrier  chan struct{} // closed when the one under way has ended; nil if there is none
}

// has reports whether the replicas have what a statement has seen, which had ended when the barrier of that
// number began. r.mu must be locked.
func (r *replicated) has(s *state, barrier int) bool {
	return s.xmax == 0 || r.server.Equal(s.server) && (r.below >= s.xmax || r.finished >= barrier)
}

// learn takes note of a transaction whose commit the replicas have: they have all that had ended before it.
func (r *replicated) learn(o *outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.server.Equal(o.server) {
		r.server, r.below, r.finished = o.server, 0, 0
	}
	below := o.xmin
	if below == o.xmax && below == o.own {
		below++ // no other has begun in between
	}
	r.below = max(r.below, below)
}

// run runs statements by f on one connection, each of which commits.
func (s *Store) run(ctx context.Context, f func(*pgxpool.Conn) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	marks := conn.Conn().PgConn().CustomData()
	delete(marks, warnedKey)
	if marks[heardKey] == nil {
		if err := hear(ctx, conn, marks); err != nil {
			return err
		}
	}
	if err := f(conn); err != nil {
		return err
	}
	if marks[warnedKey] != nil {
		return ErrWaitCanceled
	}
	return nil
}

// hear finds out whether warnings arrive on a new connection. Outside of a transaction, ROLLBACK does nothing but warn.
func hear(ctx context.Context, conn *pgxpool.Conn, marks map[string]any) error {
	if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
		return err
	}
	if marks[warnedKey] == nil {
		return ErrWarningsUnseen
	}
	delete(marks, warnedKey)
	marks[heardKey] = true
	return nil
}

// commit runs one statement, or several, that write if a condition holds. If they have written something when
// it returns nil, the replicas have that, and all that was written before.
func (s *Store) commit(ctx context.Context, o *outcome, f func(*pgxpool.Conn) error) error {
	err := s.run(ctx, f)
	switch {
	case err != nil:
		return err
	case !o.durable:
		return ErrNotDurable
	case o.rows > 0 || mutant.On(mutant.PgTrustsRefusals):
		s.replicated.learn(o)
	}
	return nil
}

// await returns nil when the synchronous replicas have what a read has seen. A commit is shown to others when
// they have it, but also when its wait for them was given up, or when the server was restarted meanwhile. So
// a read that may have seen more than the replicas are known to have makes an empty commit and waits for
// that. Reads share these commits.
func (s *Store) await(ctx context.Context, st *state) error {
	if !st.durable {
		return ErrNotDurable
	}
	r := &s.replicated
	for enough := 0; ; {
		r.mu.Lock()
		if enough == 0 {
			enough = r.started + 1
		}
		if r.has(st, enough) || mutant.On(mutant.PgShowsUnreplicated) {
			r.mu.Unlock()
			return nil
		}
		ended := r.barrier
		if ended == nil {
			r.barrier = make(chan struct{})
			r.started++
			r.mu.Unlock()
			return s.runBarrier(ctx, st)
		}
		r.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// runBarrier makes the empty commit, as the only one of the store at a time.
func (s *Store) runBarrier(ctx context.Context, st *state) (err error) {
	var now outcome
	defer func() {
		r := &s.replicated
		r.mu.Lock()
		defer r.mu.Unlock()
		if err == nil {
			r.finished = r.started
		}
		close(r.barrier)
		r.barrier = nil
	}()
	err = s.commit(ctx, &now, func(conn *pgxpool.Conn) error { return conn.QueryRow(ctx, barrierSQL).Scan(now.targets()...) })
	if err == nil && !now.server.Equal(st.server) {
		err = ErrServerChanged
	}
	return err
}
