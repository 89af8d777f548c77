package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/auth/address"
	"github.com/isotone/isotone/internal/core/oracle"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/storage"
	"github.com/isotone/isotone/internal/inspect/doctor"
	"github.com/isotone/isotone/internal/inspect/doctor/probe"
	"github.com/isotone/isotone/internal/operator"
	"github.com/isotone/isotone/internal/server"
)

// doctorCmd checks a machine and a cluster; see docs/health.md#isotone-doctor.
type doctorCmd struct {
	config.Flags
	Endpoint endpointList  `name:"endpoint" placeholder:"HOST:PORT,..." help:"Client addresses of nodes of the cluster, https URLs, or unix:PATH, the socket operator.sock in the data directory of a node; the leader and the other members are found through any of them. Without any other setting only the cluster is checked, not this machine. Default: the node with these settings, if it runs."`
	Timeout  time.Duration `name:"timeout" default:"10s" help:"Maximum time for the whole command."`
	JSON     bool          `name:"json" help:"Print one line of JSON."`

	accessFlags
}

// Run measures, judges and prints. It returns an error, and so exits with code 1, if there is a
// problem.
func (c *doctorCmd) Run(ctx context.Context, con console) error {
	s, err := c.Parse()
	if err != nil {
		return usageError(err.Error())
	}
	if c.Timeout <= 0 {
		return usagef("--timeout %v: want more than 0", c.Timeout)
	}
	ctx, cancel := operator.NewLimit(c.Timeout).Context(ctx)
	defer cancel()
	reach, err := c.open()
	if err != nil {
		return err
	}
	endpoints, err := reach.URLs("--endpoint", c.Endpoint)
	if err != nil {
		return err
	}
	if refused := reach.MayGuess(); len(c.Endpoint) == 0 && refused != nil {
		reach.Credentials = nil
		fmt.Fprintf(con.err, "isotone: the nodes are asked without credentials: %v with --endpoint\n", refused)
	}
	cfg := probe.Config{Endpoints: endpoints, Secure: reach.Secure, Client: reach.HTTPClient(&http.Transport{Proxy: http.ProxyFromEnvironment})}
	defer cfg.Client.CloseIdleConnections()
	if len(c.Endpoint) == 0 || c.isSet() {
		cfg.Local = describeMachine(&s)
	}
	m, err := probe.Run(ctx, cfg)
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, context.DeadlineExceeded):
		return fmt.Errorf("the checks have not ended: %w", cause)
	case cause != nil:
		return cause
	}
	if err != nil {
		return err
	}
	m.Unanswered = reach.ShownIn(m.Unanswered)
	if len(c.Endpoint) > 0 {
		m.Endpoints = c.Endpoint
	}
	if m.Cluster != nil {
		reach.NameSockets(m.Cluster.Report)
	}
	r := doctor.Judge(m)
	if c.JSON {
		err = json.NewEncoder(con.out).Encode(r)
	} else {
		err = doctor.WriteTable(con.out, r)
	}
	if err != nil {
		return err
	}
	return r.Err()
}

// isSet reports whether any setting of a node was set, by a flag, the environment or a file.
func (c *doctorCmd) isSet() bool {
	v := reflect.ValueOf(c.Flags)
	for i := range v.NumField() {
		if field := v.Type().Field(i); field.IsExported() && v.Field(i).String() != field.Tag.Get("default") {
			return true
		}
	}
	return false
}

// describeMachine translates the settings of a node.
func describeMachine(s *config.Settings) *probe.Local {
	loops := server.Loops(s)
	workers := s.SnowflakeWorkers
	switch {
	case s.FixedWorker >= 0:
		workers = 1
	case workers == 0:
		workers = loops + 1
	}
	var misspelled []string
	for _, m := range config.Misspelled(os.Environ()) {
		misspelled = append(misspelled, m.String())
	}
	l := &probe.Local{
		Settings: doctor.Settings{
			NodeID: s.NodeID, DataDir: s.DataDir, AdvertiseAddr: s.Advertise(s.HTTPPort), RaftAddr: s.RaftAddr,
			Peers: s.Peers, Join: hosts(s.Join), Loops: loops, Workers: workers, WorkersMax: s.SnowflakeLayout.Workers(), Misspelled: misspelled,
		},
		DataFile: storage.FileName,
		HTTP:     reachable(s.HTTPAddr()),
		Listen: []probe.Listen{
			{Setting: "HTTP_PORT", Network: "tcp", Addr: s.HTTPAddr()},
			{Setting: "HTTP_PORT", Network: "udp", Addr: s.HTTPAddr()},
			{Setting: "RAFT_ADDR", Network: "tcp", Addr: s.RaftAddr},
		},
		CAFile: s.TLSClientCA,
		Trust:  server.DescribeTrust(s),
	}
	switch id, _, err := storage.Identify(s.DataDir); {
	case err == nil:
		l.Settings.DataNode = oracle.NodeOf(id.NodeID)
	case !errors.Is(err, storage.ErrInUse) && !errors.Is(err, fs.ErrPermission): // by a node, or of another user
		l.Settings.DataError = err.Error()
	}
	if s.AdminAddr != "" {
		l.Listen = append(l.Listen, probe.Listen{Setting: "ADMIN_ADDR", Network: "tcp", Addr: s.AdminAddr})
	}
	l.CertFile, l.KeyFile, l.CertSet = s.TLSFiles()
	port, optional := strconv.Itoa(s.ThriftPort), s.ThriftPort < 0
	if optional {
		port = server.ThriftPort
	}
	if s.ThriftPort != config.PortOff {
		l.Listen = append(l.Listen, probe.Listen{Setting: "THRIFT_PORT", Network: "tcp", Addr: net.JoinHostPort(s.HTTPHost, port), Optional: optional})
	}
	if s.PDPort != config.PortOff {
		l.Listen = append(l.Listen, probe.Listen{Setting: "PD_PORT", Network: "tcp", Addr: net.JoinHostPort(s.HTTPHost, strconv.Itoa(s.PDPort))})
	}
	return l
}

// hosts returns addresses without their schemes.
func hosts(addrs []string) (list []string) {
	for _, addr := range addrs {
		_, host, named := strings.Cut(addr, "://")
		if !named {
			host = addr
		}
		list = append(list, host)
	}
	return list
}

// reachable returns the address at which this machine reaches one that it listens on.
func reachable(addr string) string {
	if _, port, _ := net.SplitHostPort(addr); address.Unspecified(addr) {
		return net.JoinHostPort("localhost", port)
	}
	return addr
}
