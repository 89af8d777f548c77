package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/isotone/isotone/internal/auth/access"
	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/front/gate"
	"github.com/isotone/isotone/internal/front/grpc"
	"github.com/isotone/isotone/internal/front/http2"
	"github.com/isotone/isotone/internal/front/pd"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/loop"
	"github.com/isotone/isotone/internal/host/secure"
	"github.com/isotone/isotone/internal/host/telemetry"
)

// pdIdle bounds the wait for the next call of a connection: clients of PD keep connections that they seldom use.
const pdIdle = 10 * time.Minute

// listenPD opens the port for clients of PD; nil: there is none.
func listenPD(s *config.Settings) (net.Listener, error) {
	if s.PDPort == config.PortOff {
		return nil, nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort(s.HTTPHost, strconv.Itoa(s.PDPort)))
	if err != nil {
		return nil, fmt.Errorf("PD_PORT: %w", err)
	}
	return l, nil
}

// openGroups reads the keyspace groups of PD; nil: there are none.
func openGroups(s *config.Settings, log *slog.Logger) (*pd.Groups, error) {
	if s.PDKeyspaceGroups == "" {
		return nil, nil
	}
	g, err := pd.OpenGroups(s.PDKeyspaceGroups, log)
	if err != nil {
		return nil, fmt.Errorf("PD_KEYSPACE_GROUPS: %w", err)
	}
	return g, nil
}

// runGroups follows the file of the keyspace groups, if there is one.
func runGroups(g *pd.Groups) func(context.Context) {
	if g == nil {
		return func(context.Context) {}
	}
	return g.Run
}

// newPD returns what answers on ln; nil: nothing does. addr is the client address of this node.
func newPD(ln net.Listener, addr string, cfg pd.Config) *pd.Server {
	if ln == nil {
		return nil
	}
	_, port, _ := net.SplitHostPort(addr)
	cfg.Port = ln.Addr().(*net.TCPAddr).Port
	cfg.ClientPort, _ = strconv.Atoi(port)
	return pd.New(cfg)
}

// notHTTP1 answers clients of HTTP/1 at the port for clients of PD.
const notHTTP1 = "HTTP/1.1 505 HTTP Version Not Supported\r\nContent-Type: application/json\r\nContent-Length: 143\r\nConnection: close\r\n\r\n" +
	`{"error":{"code":"invalid_argument","message":"this port serves the timestamps of PD's protocol, over gRPC; HTTP_PORT serves everything else"}}`

// pdFront serves the port for clients of PD, in the loop that has the core.
type pdFront struct {
	gate   *gate.Gate
	http2  *http2.Front
	secure *secure.Terminator // nil without TLS
}

// openPD serves the port for clients of PD in l, with the connections counted and admitted as in entry.
func (f *fronts) openPD(b front.Backend, l *loop.Loop, entry gate.Config) (*pdFront, error) {
	p := &pdFront{}
	cfg := &f.cfg
	p.http2 = http2.New(http2.Config{
		Loop: l, Handler: cfg.pd, Refusing: cfg.web.Access.Refusing, Log: cfg.web.Log,
		Duplex: func(path string, s *access.Session, to grpc.Sender) grpc.Duplex { return cfg.pd.Open(path, b, s, to) },
	})
	entry.HTTP1 = func(c *loop.Conn) loop.Handler {
		c.Write([]byte(notHTTP1))
		return nil
	}
	entry.Rest = func(nc net.Conn) {
		_, _ = io.WriteString(nc, notHTTP1)
		_ = nc.Close()
	}
	entry.HTTP2, entry.RESP, entry.TLS, entry.Refuse = p.http2.Open, nil, nil, func(nc net.Conn) { _ = nc.Close() }
	if p.secure = f.terminator(l, func() *gate.Gate { return p.gate }); p.secure != nil {
		entry.TLS = p.secure.Accept
	}
	p.gate = gate.New(entry)
	return p, l.Listen(cfg.pdListener, loop.Limits{IdleTimeout: pdIdle}, p.gate.Open)
}

func (p *pdFront) stop() {
	p.gate.Stop()
	if p.secure != nil {
		p.secure.Stop()
	}
	p.http2.Stop()
}

// conns returns how many connections have begun to speak.
func (p *pdFront) conns() int {
	n := p.http2.Conns()
	if p.secure != nil {
		n += p.secure.Conns()
	}
	return n
}

func (p *pdFront) wait() {
	if p.secure != nil {
		p.secure.Wait()
	}
	p.http2.Wait()
}

func (p *pdFront) connections() telemetry.Connections {
	return telemetry.Connections{Protocol: pd.Protocol, Open: p.gate.Undecided() + p.conns(), Refused: p.gate.Refused(), Refusable: true}
}
