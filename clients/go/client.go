package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
	"github.com/isotone/isotone/internal/check/conformance"
	"github.com/isotone/isotone/snowflake"
)

// open makes a client.
func (d *driver) open(ctx context.Context, c *conformance.Command) error {
	made := &driven{}
	o, err := d.options(c, made)
	if err != nil {
		return err
	}
	made.mode = o.Mode
	if made.Client, err = client.NewWith(ctx, o); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clients[c.Client] = made
	return nil
}

func (d *driver) options(c *conformance.Command, made *driven) (o client.Options, err error) {
	in := c.Options
	o = client.Options{Addrs: in.Addrs, Conns: in.Connections, QueueMax: in.QueueMax, DialTimeout: time.Duration(in.DialTimeoutMS) * time.Millisecond, Lazy: in.Lazy}
	var faults [4]error
	if in.Cluster != "" {
		o.Cluster, faults[0] = isotone.ParseClusterID(in.Cluster)
	}
	if in.Floor != "" {
		o.Floor, faults[1] = isotone.ParseTimestamp(in.Floor)
	}
	o.Mode, faults[2] = modeOf(in.Mode, isotone.ReadDefault)
	if in.TLS != nil {
		o.TLS, faults[3] = config(in.TLS)
	}
	if in.User != "" {
		made.secret.Store(&client.Credentials{Name: in.User, Secret: in.Secret})
		o.Credentials = func(context.Context) (client.Credentials, error) { return *made.secret.Load(), nil }
	}
	tell := func(event, addr, code string) {
		d.write(conformance.Reply{Event: event, Client: c.Client, Addr: addr, Error: code})
	}
	o.Hooks = client.Hooks{
		Leader:   func(addr string) { tell("leader", addr, "") },
		Rejected: func(addr string, err error) { tell("rejected", addr, codeOf(err)) },
	}
	return o, errors.Join(faults[:]...)
}

func modeOf(text string, none isotone.ReadMode) (isotone.ReadMode, error) {
	if text == "" {
		return none, nil
	}
	return isotone.ParseReadMode(text)
}

func config(in *conformance.TLS) (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(in.CA)) {
		return nil, errors.New("no authority is in the options")
	}
	o := &tls.Config{RootCAs: roots, ServerName: in.ServerName}
	if in.Cert != "" {
		pair, err := tls.X509KeyPair([]byte(in.Cert), []byte(in.Key))
		if err != nil {
			return nil, err
		}
		o.Certificates = []tls.Certificate{pair}
	}
	return o, nil
}

// call makes a call.
func call(ctx context.Context, on *driven, c *conformance.Command) (r conformance.Result, err error) {
	in, err := reader(on, c)
	if err != nil {
		return r, err
	}
	count := uint64(1)
	if c.Count != nil {
		count = *c.Count
	}
	r.Count = count
	switch c.Method {
	case "timestamp":
		r.First, err = text(simple(c, on.Timestamp, in.Timestamp)(ctx))
	case "timestamps":
		got, err := in.Timestamps(ctx, count)
		r.First = got.First.String()
		return r, err
	case "timestamp64":
		r.First, err = text(simple(c, on.Timestamp64, in.Timestamp64)(ctx))
	case "timestamps64":
		got, err := in.Timestamps64(ctx, count)
		r.First = got.First.String()
		return r, err
	case "id":
		id, err := on.Snowflake(ctx)
		r.IDs = []string{id.String()}
		return r, err
	case "ids":
		ids, err := on.Snowflakes(ctx, int(count))
		r.IDs = texts(ids)
		return r, err
	default:
		return r, fmt.Errorf("%w: the method %q", errUnsupported, c.Method)
	}
	return r, err
}

// simple returns the method of a client unless a command needs a reader.
func simple[T any](c *conformance.Command, plain, in T) T {
	if c.Mode == "" && c.Above == "" {
		return plain
	}
	return in
}

// reader returns the reader for the mode and the floor of a call.
func reader(on *driven, c *conformance.Command) (client.Reader, error) {
	mode, err := modeOf(c.Mode, on.mode)
	if err != nil {
		return client.Reader{}, err
	}
	in := on.In(mode)
	if c.Above == "" {
		return in, nil
	}
	floor, err := isotone.ParseTimestamp(c.Above)
	return in.Above(floor), err
}

func text[T fmt.Stringer](v T, err error) (string, error) { return v.String(), err }

func texts[T fmt.Stringer](of []T) (list []string) {
	for _, v := range of {
		list = append(list, v.String())
	}
	return list
}

// generate carries out a command for a generator.
func (d *driver) generate(ctx context.Context, c *conformance.Command) (r conformance.Result, err error) {
	if c.Do == "generator" {
		if err := d.lease(ctx, c); err != nil {
			return r, err
		}
	}
	g := find(d, d.generators, c.Generator)
	switch c.Do {
	case "now":
		g.now.Store(*c.NowMS)
	case "end":
		return r, g.Close()
	case "next", "try":
		ids := make([]snowflake.ID, *c.Count)
		if c.Do == "try" {
			err = g.TryFill(ids)
		} else {
			err = g.NextN(ctx, ids)
		}
		r.IDs = texts(ids)
	default:
		lease := g.Lease()
		r.Worker, r.Start, r.End = g.Worker(), lease.Start, lease.End
	}
	return r, err
}

// lease makes a generator.
func (d *driver) lease(ctx context.Context, c *conformance.Command) (err error) {
	g := &made{}
	o := client.GeneratorOptions{Lease: time.Duration(c.LeaseMS) * time.Millisecond}
	if c.Worker != nil {
		o.Fixed, o.Worker = true, *c.Worker
	}
	if c.NowMS != nil {
		g.now.Store(*c.NowMS)
		o.Now = g.now.Load
	}
	if c.AheadMaxMS != nil {
		o.AheadMax = max(time.Duration(*c.AheadMaxMS)*time.Millisecond, 1)
	}
	if g.Generator, err = find(d, d.clients, c.Client).NewGenerator(ctx, o); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.generators[c.Generator] = g
	return nil
}
