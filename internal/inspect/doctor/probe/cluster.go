package probe

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/inspect/doctor"
	"github.com/isotone/isotone/internal/inspect/survey"
)

// bodyMax bounds an answer, in bytes; the largest are metrics.
const bodyMax = 4 << 20

// readyTextMax bounds what is kept of the answer to GET /ready, in bytes.
const readyTextMax = 500

// clusterProbe is what was measured of a cluster.
type clusterProbe struct {
	found *doctor.Cluster // nil if no node answers
	// refused is set if found is nil, and a node refuses the credentials.
	refused *survey.Refusal
	// ahead is how far this machine's clock is ahead of the nodes', if aheadKnown.
	ahead      time.Duration
	aheadKnown bool
}

// probeCluster asks all nodes of a cluster. If none answers it says why. It returns an error for an
// address that is none.
func probeCluster(ctx context.Context, client *http.Client, endpoints []string) (c clusterProbe, why string, err error) {
	if len(endpoints) == 0 {
		return c, "no endpoint is known", nil
	}
	r, err := askAll(ctx, client, endpoints)
	if err != nil {
		return c, "", err
	}
	answered := false
	for _, v := range r.Views {
		if v.State != nil {
			answered = true
		} else {
			why = cmp.Or(why, v.Addr+": "+v.Error)
			c.refused = cmp.Or(c.refused, v.Refused)
		}
	}
	if !answered {
		return c, why, nil
	}
	c.refused = nil
	c.found = &doctor.Cluster{Report: r, Nodes: make([]doctor.NodeProbe, len(r.Views))}
	records := recorded(r)
	aheads := make([]*time.Duration, len(r.Views))
	var all sync.WaitGroup
	asked := false // nodes of two clusters may have one ID
	for i, v := range r.Views {
		all.Go(func() { aheads[i] = probeNode(ctx, client, v, records[v.NodeID], &c.found.Nodes[i]) })
		if v.State != nil && r.Leader != nil && v.NodeID == r.Leader.NodeID && !asked {
			asked = true
			all.Go(func() { askLeader(ctx, client, v.Addr, c.found, v.State.Timelines != nil) })
		}
	}
	all.Wait()
	for _, a := range aheads {
		if a != nil && (!c.aheadKnown || a.Abs() < c.ahead.Abs()) {
			c.ahead, c.aheadKnown = *a, true
		}
	}
	return c, "", nil
}

// askAgain is the pause before nodes are asked again.
const askAgain = 200 * time.Millisecond

// askAll asks all nodes for their documents. These are up to a second old, with the default of LIVE_INTERVAL_MS: while one
// lacks a connection, which may have been made since, it asks again, for up to Timeout.
func askAll(ctx context.Context, client *http.Client, endpoints []string) (*survey.Report, error) {
	timeout := time.NewTimer(Timeout)
	defer timeout.Stop()
	for {
		r, err := survey.Survey{Client: client, Timeout: answerTimeout(ctx)}.Ask(ctx, endpoints)
		if err != nil {
			return nil, err
		}
		if apart, _ := (&doctor.Cluster{Report: r}).Apart(); len(apart) == 0 {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return r, nil
		case <-timeout.C:
			return r, nil
		case <-time.After(askAgain):
		}
	}
}

// recorded returns the members as the nodes know them, by node ID.
func recorded(r *survey.Report) map[uint64]survey.Member {
	records := map[uint64]survey.Member{}
	for _, v := range r.Views {
		if v.State == nil {
			continue
		}
		for _, m := range v.State.Members {
			if before, known := records[m.NodeID]; !known || before.Addr == "" {
				records[m.NodeID] = m
			}
		}
	}
	return records
}

// probeNode measures one node, all at once. It returns how far this machine's clock is ahead of
// the node's, or nil.
func probeNode(ctx context.Context, client *http.Client, v survey.View, m survey.Member, p *doctor.NodeProbe) (ahead *time.Duration) {
	var all sync.WaitGroup
	if m.Addr != "" {
		all.Go(func() { p.Client = dial(ctx, v.NodeID, m.Addr) })
	}
	if m.PeerAddr != "" {
		all.Go(func() { p.Peer = dial(ctx, v.NodeID, m.PeerAddr) })
	}
	if v.State != nil {
		all.Go(func() { ahead = askReady(ctx, client, v.Addr, p) })
		all.Go(func() { p.Served = served(ctx, v.Addr, m.Addr) })
		all.Go(func() { p.Security, p.LastMove = askSecurity(ctx, client, v.Addr) })
		all.Go(func() { p.FilesOpen, p.FilesMax = openFiles(ctx, client, v.Addr) })
	}
	all.Wait()
	return ahead
}

// dial tries a TCP connection and closes it.
func dial(ctx context.Context, id uint64, addr string) *doctor.Dial {
	d := &doctor.Dial{NodeID: id, Addr: addr}
	conn, err := (&net.Dialer{Timeout: Timeout}).DialContext(ctx, "tcp", addr)
	if err != nil {
		d.Error = err.Error()
		return d
	}
	_ = conn.Close()
	return d
}

// get sends one request and reads its whole answer.
func get(ctx context.Context, client *http.Client, url string) (status int, header http.Header, body []byte, err error) {
	timeout := answerTimeout(ctx)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, nil, err
	}
	a, err := client.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return 0, nil, nil, err
	}
	defer a.Body.Close()
	body, err = io.ReadAll(io.LimitReader(a.Body, bodyMax))
	return a.StatusCode, a.Header, body, err
}

// askReady asks whether a node is ready, and compares the clocks on the way.
func askReady(ctx context.Context, client *http.Client, base string, p *doctor.NodeProbe) *time.Duration {
	began := time.Now()
	status, header, body, err := get(ctx, client, base+"/ready")
	if err != nil {
		p.ReadyText = err.Error()
		return nil
	}
	p.Ready, p.ReadyText = status, string(body[:min(len(body), readyTextMax)])
	if text := faultText(body); text != "" {
		p.ReadyText = text
	}
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return nil
	}
	middle := began.Add(time.Since(began) / 2)
	ahead := middle.Sub(date.Add(time.Second / 2)) // the Date is cut to seconds
	return &ahead
}

// faultText returns the message of an error in the JSON form of the nodes, or "".
func faultText(body []byte) string {
	var fault struct{ Error struct{ Message string } }
	if json.Unmarshal(body, &fault) != nil {
		return ""
	}
	return fault.Error.Message
}

// served returns the certificate that a node presents, nil if it presents none. record is the
// client address that clients are told.
func served(ctx context.Context, base, record string) *doctor.Certificate {
	u, err := url.Parse(base)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	// Whether it can be trusted is for its clients to say; here only its dates and names count.
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil
	}
	defer conn.Close()
	chain := conn.(*tls.Conn).ConnectionState().PeerCertificates
	if len(chain) == 0 {
		return nil
	}
	host, _, err := net.SplitHostPort(cmp.Or(record, u.Host))
	if err != nil {
		return nil
	}
	c := &doctor.Certificate{Exists: true}
	describe(c, chain, host)
	return c
}

// openFiles returns the open files of a node and their limit, 0 if it does not tell.
func openFiles(ctx context.Context, client *http.Client, base string) (open, limit uint64) {
	status, _, body, err := get(ctx, client, base+"/metrics")
	if err != nil || status != http.StatusOK {
		return 0, 0
	}
	for line := range strings.Lines(string(body)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		value, err := strconv.ParseFloat(text, 64)
		if err != nil || value < 0 || value > 1<<53 {
			continue
		}
		switch name {
		case "process_open_fds":
			open = uint64(value)
		case "process_max_fds":
			limit = uint64(value)
		}
	}
	return open, limit
}

// askSecurity asks a node who may reach it, and who has moved time; nil if it does not tell.
func askSecurity(ctx context.Context, client *http.Client, base string) (*front.Security, *survey.Move) {
	var told struct {
		front.Security
		survey.Activity
	}
	if !askJSON(ctx, client, base+"/admin/security", &told) {
		return nil, nil
	}
	return &told.Security, told.LastMove
}

// askLeader asks the leader for what only it knows.
func askLeader(ctx context.Context, client *http.Client, base string, c *doctor.Cluster, hasTimelines bool) {
	var levels front.Levels
	if askJSON(ctx, client, base+"/upgrade", &levels) {
		c.Levels = &levels
	}
	var members front.MemberList
	if askJSON(ctx, client, base+"/admin/members", &members) {
		c.Members = &members
	}
	var groups front.GroupList
	if hasTimelines && askJSON(ctx, client, base+"/admin/groups", &groups) {
		c.Groups = &groups
	}
}

func askJSON(ctx context.Context, client *http.Client, url string, into any) bool {
	status, _, body, err := get(ctx, client, url)
	return err == nil && status == http.StatusOK && json.Unmarshal(body, into) == nil
}
