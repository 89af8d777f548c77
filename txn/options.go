package txn

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/isotone/isotone"
)

// Oracle issues timestamps. Each is larger than all that were issued before it was requested, to any
// client. A client of an Isotone cluster is one.
type Oracle interface {
	Timestamp64(ctx context.Context) (isotone.Timestamp64, error)
}

// Defaults of [Options].
const (
	KeysMaxDefault       = 1024
	BytesMaxDefault      = 16 << 20
	ParallelDefault      = 16
	LockTTLDefault       = 3 * time.Second
	LockWaitDefault      = 8 * time.Second
	CallTimeoutDefault   = 2 * time.Second
	FinishTimeoutDefault = 10 * time.Second
	RunAttemptsDefault   = 20
	BackgroundMaxDefault = 64
)

const (
	// storesMax bounds the stores of a DB, spaceSizeMax the lengths of their names: a lock has a
	// byte for it.
	storesMax    = 64
	spaceSizeMax = 64
	// keysMax, bytesMax and countMax are the largest values of the options of those kinds.
	keysMax  = 1 << 16
	bytesMax = 1 << 30
	countMax = 1 << 12
	// durationMax is the largest duration of the options, which is far beyond a sensible one.
	durationMax = time.Hour
)

// Options configures a [DB]. Only Stores is required; the zero value of every other field is its
// default.
type Options struct {
	// Stores are the stores by name, 1 to 64 of them, with names of 1 to 64 bytes. Locks contain the
	// names, so all clients must give the same stores the same names, and must have all of them:
	// garbage collection has to see every lock.
	Stores map[string]Store
	// Frontier, if not nil, returns the commit timestamp of each transaction that writes, as the stamp of a write in a group of package client, so that [DB.AtFrontier] can read
	// without waiting: [Frontier](w.Begin), of a client.FrontierWriter w with FrontierOptions.U64 and the [Fence] of Stores. All clients that write to the
	// stores must have it, with the same group and the same oracle, and all stores must be [Fenced]. When the session of w has ended, commits fail with CodeOracle: make a new DB with a new writer.
	Frontier func(ctx context.Context) (Stamp, error)
	// KeysMax bounds the keys that a transaction writes, BytesMax the sum of the lengths of those
	// keys and their values. 0 means KeysMaxDefault and BytesMaxDefault; at most 65,536 and 2^30.
	KeysMax, BytesMax int
	// Parallel is how many rows a transaction reads or writes at once when it commits; 0 means
	// ParallelDefault, at most 4096.
	Parallel int
	// LockTTL is how long a lock outlives the last sign of life of its transaction: by the time of the
	// oracle, or by the steady clock of a client that watches the lock, whichever ends first. It decides how long others wait for a client that died, never what is correct. Renewals
	// come after a third of it. 0 means LockTTLDefault; 10 ms to 1 h.
	LockTTL time.Duration
	// LockWait is how long a read waits at most for a lock of a transaction that is alive, and at least
	// about half of that; 0 means LockWaitDefault; up to 1 h. If it is less than twice LockTTL, reads
	// fail for a while after a client died.
	LockWait time.Duration
	// CallTimeout bounds each call of a store; 0 means CallTimeoutDefault; up to 1 h.
	CallTimeout time.Duration
	// FinishTimeout bounds what goes on after the context of a commit is done: finding out whether it
	// has committed, and removing its locks. 0 means FinishTimeoutDefault; up to 1 h.
	FinishTimeout time.Duration
	// RunAttempts is how often [DB.Run] and [DB.View] try; 0 means RunAttemptsDefault, at most 4096.
	RunAttempts int
	// BackgroundMax is how many transactions may have their secondaries committed in the background
	// at once; a commit beyond that finishes them before it returns. 0 means BackgroundMaxDefault, at
	// most 4096; negative means that every commit does.
	BackgroundMax int
	// Sleep waits for d, or until ctx is done, whose error it returns then; nil is a timer. It is
	// called concurrently. A simulation replaces it.
	Sleep func(ctx context.Context, d time.Duration) error
	// Now is a steady clock, of which only differences count; nil is time.Now. It is called
	// concurrently. A simulation replaces it.
	Now func() time.Time
	// Hooks are called on events, for metrics and traces.
	Hooks Hooks
}

// Hooks observe a [DB]. All are optional. They are called concurrently, on the goroutines of the
// transactions, so they must return quickly and must not call the DB.
type Hooks struct {
	// Ended is called once for every transaction that was committed or rolled back, or failed to.
	Ended func(Ended)
	// Retried is called when Run or View begin again after the attempt of that number, from 1.
	Retried func(attempt int, err error)
	// Cleaned is called when the lock of another transaction was removed.
	Cleaned func(Cleaned)
	// Left is called when a lock of a transaction that has ended could not be removed. Whoever meets
	// it does that.
	Left func(space string, key []byte, err error)
	// Span is called at the begin of a step, and what it returns at its end, with the error of the
	// step or nil. The context that it returns is used within the step. The names of steps are
	// "commit", "prewrite", "timestamp", "primary", "secondaries", "undo" and "collect".
	Span func(ctx context.Context, name string) (context.Context, func(error))
}

// Ended describes a transaction that has ended, for [Hooks].
type Ended struct {
	// Start and Commit are its timestamps; Commit is 0 if it has not committed or has written nothing.
	Start, Commit isotone.Timestamp64
	// Keys is the number of keys that it writes.
	Keys int
	// Took is the time from Begin to the end.
	Took time.Duration
	// Err is the error of Commit; nil also if the transaction was rolled back.
	Err error
}

// Cleaned describes the lock of another transaction that was removed, for [Hooks].
type Cleaned struct {
	Space string
	Key   []byte
	// Start and Commit are the timestamps of that transaction; Commit is 0 if it was rolled back.
	Start, Commit isotone.Timestamp64
}

// Validate returns nil, or an error that matches isotone.ErrInvalidArgument and lists everything that
// is wrong.
func (o *Options) Validate() error {
	var faults []string
	check := func(ok bool, fault string) {
		if !ok {
			faults = append(faults, fault)
		}
	}
	check(len(o.Stores) >= 1 && len(o.Stores) <= storesMax, "Stores: want 1 to 64")
	for _, name := range slices.Sorted(maps.Keys(o.Stores)) {
		check(len(name) >= 1 && len(name) <= spaceSizeMax, "Stores: want names of 1 to 64 bytes")
		check(o.Stores[name] != nil, "Stores: one is nil")
		if _, ok := o.Stores[name].(Fenced); !ok && o.Stores[name] != nil {
			check(o.Frontier == nil, "Frontier: "+unfenced(name))
		}
	}
	check(o.KeysMax >= 0 && o.KeysMax <= keysMax, "KeysMax: want 0 to 65536")
	check(o.BytesMax >= 0 && o.BytesMax <= bytesMax, "BytesMax: want 0 to 2^30")
	check(o.Parallel >= 0 && o.Parallel <= countMax, "Parallel: want 0 to 4096")
	check(o.LockTTL == 0 || o.LockTTL >= 10*time.Millisecond && o.LockTTL <= durationMax, "LockTTL: want 10 ms to 1 h")
	check(o.LockWait >= 0 && o.LockWait <= durationMax, "LockWait: want up to 1 h")
	check(o.CallTimeout >= 0 && o.CallTimeout <= durationMax, "CallTimeout: want up to 1 h")
	check(o.FinishTimeout >= 0 && o.FinishTimeout <= durationMax, "FinishTimeout: want up to 1 h")
	check(o.RunAttempts >= 0 && o.RunAttempts <= countMax, "RunAttempts: want 0 to 4096")
	check(o.BackgroundMax <= countMax, "BackgroundMax: want at most 4096")
	if len(faults) == 0 {
		return nil
	}
	message := faults[0]
	for _, fault := range faults[1:] {
		message += "; " + fault
	}
	return invalid("txn options: %s", message)
}

func (o Options) withDefaults() Options {
	o.Stores = maps.Clone(o.Stores)
	setDefault(&o.KeysMax, KeysMaxDefault)
	setDefault(&o.BytesMax, BytesMaxDefault)
	setDefault(&o.Parallel, ParallelDefault)
	setDefault(&o.LockTTL, LockTTLDefault)
	setDefault(&o.LockWait, LockWaitDefault)
	setDefault(&o.CallTimeout, CallTimeoutDefault)
	setDefault(&o.FinishTimeout, FinishTimeoutDefault)
	setDefault(&o.RunAttempts, RunAttemptsDefault)
	setDefault(&o.BackgroundMax, BackgroundMaxDefault)
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

func setDefault[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
