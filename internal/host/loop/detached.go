package loop

import (
	"net"
	"sync"
)

// Detach takes the connection out of the loop. The result reads unread first, and
// writes what output was left first. The handler is not called any more, unless Detach
// fails: then the connection is closed.
//
// Called within Data, unread is all that is left of what Data was given. At another
// time, what was read and not used follows it.
func (c *Conn) Detach(unread []byte) (net.Conn, error) {
	if c.state != stateOpen {
		return nil, net.ErrClosed
	}
	l := c.loop
	ahead := append([]byte(nil), unread...)
	if !c.busy {
		ahead = append(ahead, c.in.bytes()...)
	}
	if c.layer != nil {
		if err := l.seal(c); err != nil {
			l.end(c, err)
			return nil, err
		}
	}
	for len(c.out) > 0 { // at once: the new owner may not write for long
		n, err := l.poll.write(c, c.out)
		if err != nil {
			break // the new owner will see
		}
		c.out = c.out[n:]
	}
	nc, unread, unsent, err := l.poll.release(c)
	if err != nil {
		l.end(c, err)
		return nil, err
	}
	d := &detached{Conn: nc, tag: c.tag, unsent: append(unsent[:len(unsent):len(unsent)], c.out...)}
	if c.layer == nil {
		d.unread = append(ahead, unread...)
		l.remove(c)
		return d, nil
	}
	d.unread = append(d.unread, unread...)
	l.remove(c)
	return c.layer.Detach(d, ahead), nil
}

// detached is a connection that has left its loop.
type detached struct {
	net.Conn
	unread []byte // belongs to the one who reads

	writing sync.Mutex
	unsent  []byte

	tag   Tag // nil: none
	ended sync.Once
}

// Close closes the connection.
func (d *detached) Close() error {
	if d.tag != nil {
		d.ended.Do(d.tag.Ended)
	}
	return d.Conn.Close()
}

// Read returns what the loop had read, then what follows.
func (d *detached) Read(p []byte) (int, error) {
	if len(d.unread) > 0 && len(p) > 0 {
		n := copy(p, d.unread)
		if d.unread = d.unread[n:]; len(d.unread) == 0 {
			d.unread = nil
		}
		return n, nil
	}
	return d.Conn.Read(p)
}

// Write writes what the loop had left, then p.
func (d *detached) Write(p []byte) (int, error) {
	if err := d.drain(); err != nil {
		return 0, err
	}
	return d.Conn.Write(p)
}

// CloseWrite ends the output, as that of a *net.TCPConn does.
func (d *detached) CloseWrite() error {
	w, ok := d.Conn.(interface{ CloseWrite() error })
	if !ok {
		return net.ErrClosed
	}
	if err := d.drain(); err != nil {
		return err
	}
	return w.CloseWrite()
}

func (d *detached) drain() error {
	d.writing.Lock()
	defer d.writing.Unlock()
	if len(d.unsent) == 0 {
		return nil
	}
	n, err := d.Conn.Write(d.unsent)
	if d.unsent = d.unsent[n:]; err == nil {
		d.unsent = nil
	}
	return err
}

// NetConn returns the connection beneath, for its options.
func (d *detached) NetConn() net.Conn { return d.Conn }
