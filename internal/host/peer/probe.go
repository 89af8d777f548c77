package peer

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// When a connection ends, a probe finds out whether the peer's process has ended as well: then
// its address refuses connections. A dying process closes its listener last, so an address that
// still accepts is tried again for a while.
const (
	// probeTimeout bounds one attempt.
	probeTimeout = 100 * time.Millisecond
	// probePauseMin is the pause after the first attempt; it doubles with each further one.
	probePauseMin = time.Millisecond
	// probePauseMax is that before the last attempt.
	probePauseMax = 64 * time.Millisecond
)

// probe dials the peer until its address refuses the connection, which it reports, or until some
// 100 ms have passed. It ends early with the connection of the peer or for want of an answer.
func (r *remote) probe() {
	addr := r.addr()
	if addr == "" {
		return
	}
	for wait := probePauseMin; ; wait *= 2 {
		refused, again := r.probeOnce(addr)
		if refused {
			r.t.cfg.Log.Debug("the address of the peer refuses connections", "peer", r.t.cfg.LogID(r.id), "addr", addr)
			r.t.cfg.ConnectionRefused(r.id)
		}
		if refused || !again || wait > probePauseMax || !pause(r.ctx, wait) || r.snapshot().Connected {
			return
		}
	}
}

// probeOnce dials the peer once, and reports whether that was refused, and if not, whether that
// may change soon.
func (r *remote) probeOnce(addr string) (refused, again bool) {
	ctx, cancel := context.WithTimeout(r.ctx, probeTimeout)
	defer cancel()
	conn, err := r.t.cfg.Dial(ctx, addr)
	if err == nil {
		conn.Close() // before the handshake: the other side takes no notice
		return false, true
	}
	return errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET)
}

// startProbe probes the peer after its connection has ended by itself with err.
func (r *remote) startProbe(err error) {
	if r.t.cfg.ConnectionRefused == nil || errors.Is(err, ErrReplaced) || r.ctx.Err() != nil || !r.probing.CompareAndSwap(false, true) {
		return
	}
	r.t.wg.Go(func() {
		defer r.probing.Store(false)
		r.probe()
	})
}
