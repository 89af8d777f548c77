package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Limits of the numbers. The defaults lie well inside; the limits keep a slip of
// the keyboard from becoming a cluster that never elects or never answers.
const (
	// nodeIDMax is the largest whole number that JSON carries exactly everywhere:
	// GET /members prints node ids as JSON numbers.
	nodeIDMax = 1<<53 - 1
	portMax   = 1<<16 - 1
	// epochIntervalMSMax: an epoch of a minute makes a failover skip a minute.
	epochIntervalMSMax = 60_000
	// clockJumpMaxMSMax: whoever wants a day of it can as well believe any clock.
	clockJumpMaxMSMax = 86_400_000
	// epochDeadlineLimitMax: no count of missed reservations beyond it differs
	// from "never".
	epochDeadlineLimitMax = 1_000_000_000
	// timestampRequestBufferMax: a waiting request costs some hundred bytes.
	timestampRequestBufferMax = 1_000_000
	// rttMSMax: forty such ticks are an election timeout of 400 seconds.
	rttMSMax = 10_000
	// snowflakeLeaseMSMin: a renewal takes an election timeout when the leader is lost.
	snowflakeLeaseMSMin = 1_000
	snowflakeLeaseMSMax = 3_600_000
	snowflakeWorkersMax = 64
	// liveIntervalMSMin: nobody sees ten changes a second as anything but a blur.
	liveIntervalMSMin = 100
	liveIntervalMSMax = 3_600_000
	// requestStatsSampleMax: a fast node still logs some lines in a minute.
	requestStatsSampleMax = 1_000_000
	// loopsMax: beyond one loop a core there is nothing to gain.
	loopsMax = 64
)

// Fault is one setting with a value that cannot be used.
type Fault struct {
	// Env and Flag name the setting, as in HTTP_PORT and http-port.
	Env, Flag string
	// Value is the text that was given, or the part of it that is at fault.
	Value string
	// Want says what would do.
	Want string
}

// Error returns one line: HTTP_PORT (--http-port) = "x": want ….
func (f Fault) Error() string {
	return fmt.Sprintf("%s (--%s) = %q: %s", f.Env, f.Flag, f.Value, f.Want)
}

// Faults is everything that is wrong, in the order of the list of settings. It
// is an error only when it is not empty.
type Faults []Fault

// Error returns a heading and one line for each fault.
func (f Faults) Error() string {
	var b strings.Builder
	b.WriteString("bad settings:")
	for _, fault := range f {
		b.WriteString("\n  " + fault.Error())
	}
	return b.String()
}

// Unwrap returns the single faults, for [errors.As].
func (f Faults) Unwrap() []error {
	errs := make([]error, len(f))
	for i, fault := range f {
		errs[i] = fault
	}
	return errs
}

// err returns f as an error, nil when f is empty.
func (f Faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// add notes a fault of the setting called flag.
func (f *Faults) add(flag, value, want string) {
	for _, n := range names {
		if n.flag == flag {
			*f = append(*f, Fault{Env: n.env, Flag: flag, Value: value, Want: want})
			return
		}
	}
	panic("config: no setting is called " + flag)
}

// Validate returns nil, or a [Faults] that lists everything that is wrong. It
// changes nothing and touches neither disk nor network.
func (s *Settings) Validate() error {
	faults := append(Faults(nil), s.fileFaults...)
	faults.number("node-id", s.NodeID, 1, nodeIDMax)
	if !validHost(s.HTTPHost) && s.HTTPHost != "" {
		faults.add("http-host", s.HTTPHost, "want a host name or an IP address, without a port; or nothing, for every interface")
	}
	faults.number("http-port", s.HTTPPort, 0, portMax)
	if s.AdvertiseAddr != "" {
		faults.hostPort("advertise-addr", s.AdvertiseAddr, s.AdvertiseAddr, 1)
	}
	faults.hostPort("raft-addr", s.RaftAddr, s.RaftAddr, 0)
	_, peerFaults := s.parsePeers()
	faults = append(faults, peerFaults...)
	if s.DataDir == "" {
		faults.add("data-dir", s.DataDir, "want the path of a directory")
	}
	if s.TLSCert == "" && s.TLSKey != "" {
		faults.add("tls-cert", s.TLSCert, "want a file, as TLS_KEY is set: both or neither")
	}
	if s.TLSCert != "" && s.TLSKey == "" {
		faults.add("tls-key", s.TLSKey, "want a file, as TLS_CERT is set: both or neither")
	}
	faults.number("epoch-interval-ms", s.EpochIntervalMS, 0, epochIntervalMSMax)
	faults.number("clock-jump-max-ms", s.ClockJumpMaxMS, 0, clockJumpMaxMSMax)
	faults.number("epoch-deadline-limit", s.EpochDeadlineLimit, 1, epochDeadlineLimitMax)
	faults.number("timestamp-request-buffer", s.TimestampRequestBuffer, 1, timestampRequestBufferMax)
	if s.ReadMode != "quorum" && s.ReadMode != "lease" {
		faults.add("read-mode", s.ReadMode, "want quorum or lease")
	}
	faults.number("rtt-ms", s.RTTMS, 1, rttMSMax)
	faults.number("loops", s.Loops, 0, loopsMax)
	if s.ThriftPort != "" {
		faults.number("thrift-port", s.ThriftPort, 0, portMax)
	}
	faults.snowflakes(s)
	faults.number("live-interval-ms", s.LiveIntervalMS, liveIntervalMSMin, liveIntervalMSMax)
	faults.onOff("forward", s.Forward)
	faults.onOff("dashboard", s.Dashboard)
	faults.onOff("request-stats", s.RequestStats)
	faults.number("request-stats-sample", s.RequestStatsSample, 1, requestStatsSampleMax)
	faults.onOff("debug", s.Debug)
	faults.onOff("pretty", s.Pretty)
	faults.onOff("log-time-ms", s.LogTimeMS)
	return faults.err()
}

// PeerMap returns the peer addresses (host:port) of the initial members by node
// id: those of PEERS, or this node alone at RAFT_ADDR. The error is a [Faults],
// and Validate reports the same.
func (s *Settings) PeerMap() (map[uint64]string, error) {
	peers, faults := s.parsePeers()
	return peers, faults.err()
}

func (s *Settings) parsePeers() (peers map[uint64]string, faults Faults) {
	if s.Peers == "" {
		return map[uint64]string{s.NodeID.Uint64(): s.RaftAddr}, nil
	}
	peers = map[uint64]string{}
	taken := map[string]bool{}
	for entry := range strings.SplitSeq(s.Peers, ",") {
		entry = strings.TrimSpace(entry)
		text, addr, _ := strings.Cut(entry, "=")
		id, ok := Number(text).within(1, nodeIDMax)
		switch {
		case !ok:
			faults.add("peers", entry, "want id=host:port with an id of 1 or more")
		case peers[uint64(id)] != "":
			faults.add("peers", entry, "want every id once")
		case taken[addr]:
			faults.add("peers", entry, "want every address once")
		case faults.hostPort("peers", entry, addr, 1):
			peers[uint64(id)] = addr
			taken[addr] = true
		}
	}
	own, ok := s.NodeID.within(1, nodeIDMax)
	if ok && len(faults) == 0 && peers[uint64(own)] == "" {
		faults.add("peers", s.Peers, fmt.Sprintf("want an entry for this node, NODE_ID %d", own))
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return peers, nil
}

func (f *Faults) number(flag string, n Number, low, high int64) {
	if _, ok := n.within(low, high); !ok {
		f.add(flag, string(n), fmt.Sprintf("want a whole number from %d to %d", low, high))
	}
}

func (f *Faults) onOff(flag string, w Switch) {
	if _, ok := w.parse(); !ok {
		f.add(flag, string(w), "want 0, 1, true or false")
	}
}

// hostPort reports whether addr is host:port with a port of at least portMin. If
// not it notes a fault with the given value.
func (f *Faults) hostPort(flag, value, addr string, portMin int64) bool {
	host, port, err := net.SplitHostPort(addr)
	_, portOK := Number(port).within(portMin, portMax)
	if err == nil && validHost(host) && portOK {
		return true
	}
	f.add(flag, value, fmt.Sprintf("want host:port with a port from %d to %d", portMin, portMax))
	return false
}

// within returns the number if it is one from low to high.
func (n Number) within(low, high int64) (int64, bool) {
	i, err := strconv.ParseInt(string(n), 10, 64)
	return i, err == nil && low <= i && i <= high
}

// validHost reports whether host is an IP address or could be a host name. Only
// a resolver knows more.
func validHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host != "" && !strings.ContainsAny(host, ":/[]@=,\"' \t\r\n")
}
