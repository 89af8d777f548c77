package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/interval"
	"github.com/isotone/isotone/internal/reply"
)

// This file asks one node for a reading of the cluster clock.

// ask asks a node, and passes the outcome to the syncer.
func (k *Clock) ask(src *source, kept *inquiry) {
	ctx, cancel := context.WithTimeout(k.ctx, k.c.opt.DialTimeout)
	defer cancel()
	o := sounding{source: src, line: kept}
	o.err = k.sound(ctx, &o)
	select {
	case k.soundings <- o:
	case <-k.ctx.Done():
		o.line.close()
	}
}

// sound asks on the kept connection or, if there is none or it has ended, on a new one.
func (k *Clock) sound(ctx context.Context, o *sounding) error {
	if o.line != nil {
		err := k.exchange(ctx, o)
		if o.line != nil || ctx.Err() != nil {
			return err
		}
	}
	err := k.connect(ctx, o)
	if err == nil {
		err = k.exchange(ctx, o)
	}
	k.c.report(o.source.addr, err)
	return err
}

// connect opens a connection to a node of the client's cluster.
func (k *Clock) connect(ctx context.Context, o *sounding) error {
	conn, read, err := k.c.open(ctx, o.source.addr)
	if err != nil {
		return err
	}
	pong, err := k.c.handshake(ctx, conn, read, o.source.addr, "PING")
	if err == nil && string(pong.Text) != "PONG" {
		err = reply.Malformed("%.40q to PING", pong.Text)
	}
	if err != nil {
		_ = conn.Close()
		return err
	}
	o.line = &inquiry{conn: conn, read: read}
	return nil
}

// exchange asks for a reading. After an error that leaves the connection unusable it is closed, and
// o.line is nil.
func (k *Clock) exchange(ctx context.Context, o *sounding) error {
	err := within(ctx, o.line.conn, func() error { return k.question(o) })
	if err == nil {
		err = k.check(o)
	}
	var refusal *isotone.Error
	if err == nil || errors.As(err, &refusal) && refusal.Code != isotone.CodeUnauthorized && refusal.Code != isotone.CodeWrongCluster {
		return err
	}
	o.line.close()
	o.line = nil
	return refusedClient(err)
}

// question sends a question and reads the answer that has its nonce: others were meant for others, or
// are late.
func (k *Clock) question(o *sounding) error {
	nonce := rand.Uint64()
	line := appendCommand(nil, "INTERVAL", strconv.FormatUint(nonce, 10))
	o.sent = k.exact()
	if _, err := o.line.conn.Write(line); err != nil {
		return err
	}
	for range strayMax {
		v, err := readReply(o.line.read)
		o.received = k.exact()
		if err != nil {
			return err
		}
		reading, got, err := interval.Decode(v.Text)
		if err != nil {
			return reply.Malformed("%v", err)
		}
		if got == nonce {
			o.reading, o.took = reading, time.Duration(o.received.Hi-o.sent.Lo)
			return nil
		}
	}
	return reply.Malformed("%d answers to other questions", strayMax)
}

// check returns an error unless the reading is one of the client's cluster.
func (k *Clock) check(o *sounding) error {
	id := isotone.ClusterID(o.reading.Cluster)
	if id != 0 && k.c.pin.CompareAndSwap(0, uint64(id)) {
		return nil
	}
	if pin := k.c.Cluster(); pin != id {
		return k.c.reject(o.source.addr, isotone.Errorf(isotone.CodeWrongCluster,
			"%s reads the clock of cluster %s, want %s", o.source.addr, id, pin))
	}
	return nil
}
