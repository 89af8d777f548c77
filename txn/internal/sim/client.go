package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/check"
)

const (
	keysEach = 2  // lists, registers and accounts in each space
	balance  = 10 // of each account at first
	total    = balance * keysEach * 2
)

// entry is one transaction of the history.
type entry struct {
	txn   check.Txn
	tx    *txn.Tx
	reads []check.Op // what it has read of others
}

// client runs transactions.
type client struct {
	w     *world
	id    int
	rng   *rand.Rand
	db    *txn.DB
	value int64
	count int
}

// spawn starts one more client. The world must be at rest, or locked.
func (w *world) spawn() {
	id := w.clients
	w.clients++
	w.running++
	c := w.newClient(id)
	go func() {
		for range 6 + c.rng.IntN(8) {
			c.transaction()
		}
		c.db.Close()
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.dead[id] {
			w.running--
		}
	}()
}

func (w *world) newClient(id int) *client {
	rng := rand.New(rand.NewPCG(w.opts.Seed, uint64(100+id)))
	return &client{w: w, id: id, rng: rng, db: w.database(id, rng), value: int64(id) * 1000}
}

// A row is in the space that its number says, and has a name that begins with its kind.

type row struct{ space, key string }

func (r row) name() string { return r.space + "/" + r.key }

func rows(kind string) (list []row) {
	for i := range keysEach {
		for _, space := range spaces {
			list = append(list, row{space, kind + strconv.Itoa(i)})
		}
	}
	return list
}

func (c *client) row(kind string) row {
	list := rows(kind)
	return list[c.rng.IntN(len(list))]
}

// setUp opens the accounts without faults.
func (w *world) setUp() {
	f := w.faults
	w.faults = faults{}
	c := w.newClient(0)
	w.clients, w.running = 1, 1
	go func() {
		err := c.db.Run(w.t.Context(), func(tx *txn.Tx) error {
			for _, r := range rows("m") {
				if err := tx.Set(r.space, []byte(r.key), []byte(strconv.Itoa(balance))); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			w.report(fmt.Errorf("liveness: set-up: %w", err))
		}
		c.db.Close()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running--
	}()
	for w.alive() && w.next() {
	}
	w.faults, w.oracle.started = f, true
	w.diskFaults = drawDiskFaults(w.diskRNG)
	if w.diskRNG.IntN(2) == 0 {
		w.faults.steady = 0.2 * w.diskRNG.Float64()
	}
}

// transaction runs one transaction and records it.
func (c *client) transaction() {
	ctx := c.w.t.Context()
	if n := c.w.faults.collect; n > 0 && c.rng.IntN(n) == 0 {
		c.collect(ctx)
		return
	}
	if c.w.opts.Frontier && c.rng.IntN(3) == 0 {
		c.atFrontier(ctx)
		return
	}
	c.count++
	e := &entry{txn: check.Txn{Name: fmt.Sprintf("T%d.%d", c.id, c.count), Status: check.Unknown}}
	c.w.mu.Lock()
	if c.w.closing {
		c.w.mu.Unlock()
		return
	}
	e.txn.Begin = int64(c.w.step)
	c.w.entries = append(c.w.entries, e)
	c.w.mu.Unlock()
	err := c.attempt(ctx, e)
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	switch {
	case c.w.closing || c.w.dead[c.id]:
	case err == nil:
		e.txn.Status, e.txn.End = check.Committed, int64(c.w.step)
	case !errors.Is(err, txn.ErrUnknown):
		e.txn.Status = check.Aborted
	}
}

func (c *client) attempt(ctx context.Context, e *entry) error {
	tx, err := c.db.Begin(ctx)
	if err != nil {
		return err
	}
	e.tx = tx
	switch c.rng.IntN(8) {
	case 0, 1:
		err = c.transfer(ctx, tx)
	case 2:
		err = c.audit(ctx, tx)
	case 3:
		err = c.scan(ctx, tx, e)
	default:
		err = c.mixed(ctx, tx, e)
	}
	if err != nil {
		tx.Rollback()
		return err
	}
	return tx.Commit(ctx)
}

// mixed reads and writes lists and registers.
func (c *client) mixed(ctx context.Context, tx *txn.Tx, e *entry) error {
	for range 1 + c.rng.IntN(4) {
		var err error
		if c.rng.IntN(2) == 0 {
			err = c.list(ctx, tx, e)
		} else {
			err = c.register(ctx, tx, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// list reads a list, and may append to it.
func (c *client) list(ctx context.Context, tx *txn.Tx, e *entry) error {
	r := c.row("l")
	v, _, err := tx.Get(ctx, r.space, []byte(r.key))
	if err != nil {
		return err
	}
	c.record(e, check.Op{Kind: check.List, Key: r.name(), List: parseList(v)})
	if c.rng.IntN(3) == 0 {
		return nil
	}
	c.value++
	v = fmt.Appendf(v, "%d ", c.value)
	c.record(e, check.Op{Kind: check.Append, Key: r.name(), Value: c.value})
	return tx.Set(r.space, []byte(r.key), v)
}

// register reads a register, writes it, or both.
func (c *client) register(ctx context.Context, tx *txn.Tx, e *entry) error {
	r := c.row("r")
	how := c.rng.IntN(3)
	if how > 0 {
		v, _, err := tx.Get(ctx, r.space, []byte(r.key))
		if err != nil {
			return err
		}
		c.record(e, check.Op{Kind: check.Read, Key: r.name(), Value: parseValue(v)})
	}
	if how > 1 {
		return nil
	}
	c.value++
	c.record(e, check.Op{Kind: check.Write, Key: r.name(), Value: c.value})
	return tx.Set(r.space, []byte(r.key), strconv.AppendInt(nil, c.value, 10))
}

// record adds an operation to the entry. Reads of what the transaction itself has written are not
// reads of others.
func (c *client) record(e *entry, op check.Op) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if op.Kind == check.List || op.Kind == check.Read {
		own := false
		for _, before := range e.txn.Ops {
			own = own || before.Key == op.Key && (before.Kind == check.Append || before.Kind == check.Write)
		}
		if !own {
			e.reads = append(e.reads, op)
		}
	}
	e.txn.Ops = append(e.txn.Ops, op)
}

func parseList(v []byte) (list []int64) {
	for _, field := range strings.Fields(string(v)) {
		list = append(list, parseValue([]byte(field)))
	}
	return list
}

func parseValue(v []byte) int64 {
	if len(v) == 0 {
		return 0
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return -1 // the checker takes it for garbage
	}
	return n
}

// transfer moves money, often all of it. An account without money is deleted.
func (c *client) transfer(ctx context.Context, tx *txn.Tx) error {
	from, to := c.row("m"), c.row("m")
	a, _, err := tx.Get(ctx, from.space, []byte(from.key))
	if err != nil || from == to {
		return err
	}
	b, _, err := tx.Get(ctx, to.space, []byte(to.key))
	if err != nil {
		return err
	}
	amount := parseValue(a)
	if c.rng.IntN(2) == 0 {
		amount = c.rng.Int64N(amount + 1)
	}
	if err := setMoney(tx, from, parseValue(a)-amount); err != nil {
		return err
	}
	return setMoney(tx, to, parseValue(b)+amount)
}

func setMoney(tx *txn.Tx, r row, amount int64) error {
	if amount == 0 {
		return tx.Delete(r.space, []byte(r.key))
	}
	return tx.Set(r.space, []byte(r.key), strconv.AppendInt(nil, amount, 10))
}

// audit sums up all accounts, by a scan or one by one.
func (c *client) audit(ctx context.Context, tx *txn.Tx) error {
	sum := int64(0)
	if c.rng.IntN(2) == 0 {
		for _, r := range rows("m") {
			v, _, err := tx.Get(ctx, r.space, []byte(r.key))
			if err != nil {
				return err
			}
			sum += parseValue(v)
		}
	} else {
		for _, space := range spaces {
			for pair, err := range tx.All(ctx, space, []byte("m"), []byte("n")) {
				if err != nil {
					return err
				}
				sum += parseValue(pair.Value)
			}
		}
	}
	if sum != total {
		c.w.report(fmt.Errorf("total: snapshot %v of client %d has %d, want %d", tx.Start(), c.id, sum, total))
	}
	return nil
}

// scan reads all lists and registers.
func (c *client) scan(ctx context.Context, tx *txn.Tx, e *entry) error {
	for _, space := range spaces {
		found := map[string][]byte{}
		for pair, err := range tx.All(ctx, space, nil, nil) {
			if err != nil {
				return err
			}
			found[string(pair.Key)] = pair.Value
		}
		for _, r := range append(rows("l"), rows("r")...) {
			v := found[r.key]
			switch {
			case r.space != space:
			case r.key[0] == 'l':
				c.record(e, check.Op{Kind: check.List, Key: r.name(), List: parseList(v)})
			default:
				c.record(e, check.Op{Kind: check.Read, Key: r.name(), Value: parseValue(v)})
			}
		}
	}
	return nil
}

// collect collects garbage.
func (c *client) collect(ctx context.Context) {
	keep := time.Duration(c.rng.IntN(20)) * time.Millisecond
	if _, err := c.db.Collect(ctx, keep); err == nil {
		c.w.mu.Lock()
		c.w.result.Collected++
		c.w.mu.Unlock()
	}
}

// readAll is the last client: it reads everything, collects garbage, and reads everything again.
func (w *world) readAll() {
	c := w.newClient(finalClient)
	ctx := w.t.Context()
	read := func() {
		err := c.db.View(ctx, func(tx *txn.Tx) error {
			e := &entry{tx: tx, txn: check.Txn{Name: "final", Status: check.Committed, Begin: int64(w.step)}}
			if err := c.scan(ctx, tx, e); err != nil {
				return err
			}
			if err := c.audit(ctx, tx); err != nil {
				return err
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.entries = append(w.entries, e)
			return nil
		})
		if err != nil {
			w.report(fmt.Errorf("liveness: the last client: %w", err))
		}
	}
	read()
	if _, err := c.db.Collect(ctx, 0); err != nil {
		w.report(fmt.Errorf("liveness: the last garbage collection: %w", err))
	}
	read()
	c.db.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
}
