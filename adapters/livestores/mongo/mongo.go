// Package mongo loads live documents from MongoDB with its official driver.
//
// A document is found by its _id and becomes relaxed Extended JSON: numbers and texts as in JSON, dates
// as {"$date":"2026-01-02T03:04:05Z"}, ObjectIDs as {"$oid":"…"}. The driver connects only to hosts
// that the URL names, or with mongodb+srv to those of its domain, whatever servers say.
//
// Source: MongoDB's specification "Extended JSON", version 2.
package mongo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/live"
	"github.com/isotone/isotone/internal/live/store"
)

// disconnectTimeout bounds the end of the connections: less than a node waits for this process.
const disconnectTimeout = 250 * time.Millisecond

// Loader is a document of MongoDB. Its methods are called by one goroutine.
type Loader struct {
	url    *store.URL
	filter bson.D
	client *mongo.Client // nil: not connected
	last   bson.Raw      // the document of the last good load
	// pending is the client that is being made; nil: none is.
	pending chan made

	mu    sync.Mutex
	cause error // why the driver found no server; see note
}

// Open returns the loader for a URL. It connects to nothing.
func Open(u *store.URL) (store.Loader, error) {
	return &Loader{url: u, filter: filter(u.ID)}, nil
}

// filter returns what finds the document with an _id: as text, as an ObjectID if it is 24
// hexadecimal digits, and as a number if it is a whole one.
func filter(id string) bson.D {
	readings := bson.A{id}
	if oid, err := bson.ObjectIDFromHex(id); err == nil {
		readings = append(readings, oid)
	}
	if n, err := strconv.ParseInt(id, 10, 64); err == nil && strconv.FormatInt(n, 10) == id {
		readings = append(readings, n)
	}
	return bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: readings}}}}
}

// Load finds the document. If several have that _id, as a number, a text and an ObjectID, the first
// of these is taken. See [store.Loader].
func (l *Loader) Load(ctx context.Context, sizeMax int) (document []byte, changed bool, err error) {
	if err := l.connect(ctx); err != nil {
		return nil, false, err
	}
	l.note(nil)
	byType := options.FindOne().SetSort(bson.D{{Key: "_id", Value: 1}})
	raw, err := l.client.Database(l.url.Database).Collection(l.url.Collection).FindOne(ctx, l.filter, byType).Raw()
	switch {
	case err != nil:
		return nil, false, l.failure(err)
	case bytes.Equal(raw, l.last):
		return nil, false, nil
	}
	document, err = bson.MarshalExtJSON(raw, false, false)
	switch {
	case err != nil:
		return nil, false, isotone.Errorf(isotone.CodeInvalidArgument, "the document cannot be written as JSON: %v", err)
	case len(document) > sizeMax:
		return nil, false, isotone.Errorf(isotone.CodeInvalidArgument, "more than %d bytes as JSON", sizeMax)
	}
	l.last = raw
	return document, true, nil
}

// Close ends the connections. A question to DNS that is under way ends by itself.
func (l *Loader) Close() {
	if l.client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), disconnectTimeout)
	defer cancel()
	_ = l.client.Disconnect(ctx) // nothing was written
	l.client = nil
}

// connect makes the client, which connects when it is used. With mongodb+srv that asks DNS, without
// regard to ctx; a later load takes what becomes of it.
func (l *Loader) connect(ctx context.Context) error {
	if l.client != nil {
		return nil
	}
	if l.pending == nil {
		l.pending = make(chan made, 1)
		go func(to chan<- made) {
			client, err := l.newClient()
			to <- made{client, err}
		}(l.pending)
	}
	select {
	case m := <-l.pending:
		l.pending = nil
		if m.err != nil {
			return unusable(m.err)
		}
		l.client = m.client
		return nil
	case <-ctx.Done():
		return isotone.Errorf(isotone.CodeDeadlineExceeded, "DNS did not answer in time")
	}
}

// made is the outcome of newClient.
type made struct {
	client *mongo.Client
	err    error
}

func (l *Loader) newClient() (*mongo.Client, error) {
	opts := options.Client().ApplyURI(l.url.Driver).
		SetAppName("isotone").
		SetDialer(newDialer(l)).
		SetMaxPoolSize(1).
		SetMinPoolSize(0).
		SetMaxConnecting(1).
		// One connection that asks every ten seconds, instead of one that waits and one that measures.
		SetServerMonitoringMode("poll").
		// A server of the certificate's choice would be asked.
		SetDisableOCSPEndpointCheck(true).
		SetServerMonitor(&event.ServerMonitor{ServerHeartbeatFailed: func(e *event.ServerHeartbeatFailedEvent) { l.note(e.Failure) }})
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	return mongo.Connect(opts)
}

// unusable returns the error for options that the driver does not take, or SRV records that it does
// not get.
func unusable(err error) error {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return isotone.Errorf(isotone.CodeNotFound, "there are no SRV records: %v", err)
	case errors.As(err, &dns):
		return isotone.Errorf(isotone.CodeInternal, "SRV records: %v", err)
	}
	return isotone.Errorf(isotone.CodeInvalidArgument, "%v", err)
}

// note keeps why a server cannot be used: the driver tells only that it found none in time. A refusal
// is worth more than what else fails.
func (l *Loader) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var refused *live.RefusedError
	if err == nil || !errors.As(l.cause, &refused) {
		l.cause = err
	}
}

// failure returns the error of a load.
func (l *Loader) failure(err error) error {
	l.mu.Lock()
	cause := l.cause
	l.mu.Unlock()
	var command mongo.CommandError
	var refused *live.RefusedError
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return isotone.Errorf(isotone.CodeNotFound, "no document has this _id")
	case errors.As(err, &command) && !mongo.IsNetworkError(err):
		return isotone.Errorf(codeOf(command.Code, l.url), "the server says: %s", command.Message)
	case errors.As(cause, &refused): // else a member was found that can be used
		return refused
	case strings.Contains(err.Error(), "auth error"):
		return isotone.Errorf(isotone.CodeUnauthorized, "the server does not accept user and password, or their authSource: %v", err)
	case mongo.IsTimeout(err) && !mongo.IsNetworkError(err) && cause != nil && !isTimeout(cause):
		return isotone.Errorf(isotone.CodeInternal, "no server can be used: %v", cause)
	case mongo.IsTimeout(err), errors.Is(err, context.DeadlineExceeded):
		return isotone.Errorf(isotone.CodeDeadlineExceeded, "no answer in time")
	}
	return isotone.Errorf(isotone.CodeInternal, "%v", err)
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}

// codeOf returns the code for an error of a server.
//
// Source: MongoDB's src/mongo/base/error_codes.yml.
func codeOf(code int32, u *store.URL) isotone.Code {
	switch code {
	case 18, 11: // AuthenticationFailed, UserNotFound
		return isotone.CodeUnauthorized
	case 13: // Unauthorized
		if strings.Contains(u.Driver, "@") {
			return isotone.CodeForbidden
		}
		return isotone.CodeUnauthorized
	case 50, 262: // MaxTimeMSExpired, ExceededTimeLimit
		return isotone.CodeDeadlineExceeded
	case 26: // NamespaceNotFound
		return isotone.CodeNotFound
	case 2, 9, 73: // BadValue, FailedToParse, InvalidNamespace
		return isotone.CodeInvalidArgument
	case 462: // IngressRequestRateLimitExceeded
		return isotone.CodeOverloaded
	}
	return isotone.CodeInternal
}

// dialer connects to the hosts of the URL.
type dialer struct {
	*live.Dialer
	domain string // with mongodb+srv: how names of hosts must end
	loader *Loader
}

func newDialer(l *Loader) *dialer {
	d := &dialer{live.NewDialer(l.url.Hosts...), "", l}
	if l.url.Scheme == "mongodb+srv" {
		// The rule that the driver has for SRV records.
		d.domain = strings.ToLower(strings.TrimSuffix(l.url.Hosts[0], "."))
		if first, rest, _ := strings.Cut(d.domain, "."); strings.Contains(rest, ".") && first != "" {
			d.domain = rest
		}
		d.domain = "." + d.domain
	}
	return d
}

// DialContext connects, but not to a host that only a server names, or that only this machine
// reaches.
func (d *dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(addr)
	within := d.domain != "" && strings.HasSuffix(strings.ToLower(strings.TrimSuffix(host, ".")), d.domain)
	if !within && !d.Named(host) {
		err := &live.RefusedError{Reason: fmt.Sprintf("a member of the replica set calls itself %.100q, which the URL does not name; "+
			"put all members into LIVE, or directConnection=true for this one", host)}
		d.loader.note(err)
		return nil, err
	}
	conn, err := d.Dialer.DialContext(ctx, network, addr)
	if err != nil && ctx.Err() == nil {
		d.loader.note(err)
	}
	return conn, err
}
