package config

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/isotone/isotone/internal/auth/address"
)

// SRV names DNS records (RFC 2782) that list the initial members of a cluster, as a headless
// Kubernetes service has them. PEERS is dns+srv:NAME?count=N then.
type SRV struct {
	// Name is looked up as it is.
	Name string
	// Count is how many initial members there are, 1 to 64. Fewer records never form a cluster.
	Count int
	// ByPriority takes the ID of a node from the priority of its record. Otherwise it is one more
	// than the number at the end of the first label of the target: 1 for isotone-0.example.
	ByPriority bool
}

const (
	srvScheme   = "dns+srv:"
	srvCountMax = peersMax
)

// srv parses PEERS in the form dns+srv:NAME?count=N&id=ordinal. With joins, nodes that are added later
// may have it as well.
func (p *parser) srv(text string, own uint64, joins bool) *SRV {
	fault := func(want string) *SRV {
		p.faults.add("peers", text, want)
		return nil
	}
	name, query, _ := strings.Cut(strings.TrimPrefix(text, srvScheme), "?")
	if !address.ValidHost(name) || strings.Contains(name, "/") {
		return fault("want dns+srv:NAME?count=N with the name of SRV records, and no other entries")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return fault("want dns+srv:NAME?count=N")
	}
	v := &SRV{Name: name}
	for key, list := range values {
		switch {
		case len(list) > 1:
			return fault(fmt.Sprintf("want %s once", key))
		case key == "count":
			count, _ := within(list[0], 1, srvCountMax)
			v.Count = int(count)
		case key == "id" && (list[0] == "ordinal" || list[0] == "priority"):
			v.ByPriority = list[0] == "priority"
		default:
			return fault("want count=N, and nothing else but id=ordinal or id=priority")
		}
	}
	if v.Count == 0 {
		return fault(fmt.Sprintf("want ?count=N, the number of initial members, from 1 to %d", srvCountMax))
	}
	if !v.ByPriority && own > uint64(v.Count) && !joins {
		return fault(fmt.Sprintf("the initial members have the IDs 1 to %d, and NODE_ID is %d: want JOIN in place of PEERS, or beside it, for a node that is added later", v.Count, own))
	}
	return v
}

// IDs returns the IDs of the initial members, sorted, or nil if only the records have them.
func (v *SRV) IDs() (ids []uint64) {
	if !v.ByPriority {
		for id := range uint64(v.Count) {
			ids = append(ids, id+1)
		}
	}
	return ids
}

// Peers returns the peer addresses (host:port) of the initial members by node ID. The error says
// what is missing in the records, or wrong with them; the addresses are those that are right.
func (v *SRV) Peers(records []*net.SRV) (map[uint64]string, error) {
	peers := map[uint64]string{}
	taken := map[string]bool{}
	for _, r := range records {
		host := strings.TrimSuffix(r.Target, ".")
		addr := net.JoinHostPort(host, strconv.Itoa(int(r.Port)))
		if !address.Valid(addr, 1) {
			return peers, fmt.Errorf("a record has the target %q and the port %d", r.Target, r.Port)
		}
		id, err := v.id(r, host)
		if err != nil {
			return peers, err
		}
		if id > uint64(v.Count) && !v.ByPriority {
			continue // it was added later
		}
		if peers[id] != "" && peers[id] != addr || peers[id] == "" && taken[addr] {
			return peers, fmt.Errorf("two records for node %d, or for %s: the name must have one port and one record for each node", id, addr)
		}
		peers[id], taken[addr] = addr, true
	}
	switch {
	case len(peers) > v.Count:
		return peers, fmt.Errorf("there are records of %d nodes, and count=%d", len(peers), v.Count)
	case len(peers) == v.Count:
		return peers, nil
	case v.ByPriority:
		return peers, fmt.Errorf("there are records of %d of %d nodes", len(peers), v.Count)
	}
	var missing []string
	for id := uint64(1); id <= uint64(v.Count); id++ {
		if peers[id] == "" {
			missing = append(missing, strconv.FormatUint(id, 10))
		}
	}
	return peers, fmt.Errorf("there are records of %d of %d nodes; missing: node %s", len(peers), v.Count, strings.Join(missing, ", "))
}

// id returns the node ID that a record stands for.
func (v *SRV) id(r *net.SRV, host string) (uint64, error) {
	if v.ByPriority {
		if r.Priority == 0 {
			return 0, fmt.Errorf("the record of %s has priority 0, and id=priority needs that to be the ID of the node", host)
		}
		return uint64(r.Priority), nil
	}
	return ordinalID(host)
}

// ordinalID returns the node ID that a host name stands for: one more than the number at the end
// of its first label, 1 for isotone-0.example.
func ordinalID(host string) (uint64, error) {
	label, _, _ := strings.Cut(host, ".")
	dash := strings.LastIndexByte(label, '-')
	n, ok := within(label[dash+1:], 0, nodeIDMax-1)
	if dash < 1 || !ok {
		return 0, fmt.Errorf("the host name %q does not end its first label with a number, as in isotone-0", host)
	}
	return uint64(n) + 1, nil
}

// ordinal is the text of NODE_ID that takes it from the host name.
const ordinal = "ordinal"

var hostname = os.Hostname // tests replace it

// nodeID parses NODE_ID.
func (p *parser) nodeID(text string) uint64 {
	word, exceptions, _ := strings.Cut(text, ",")
	if word != ordinal {
		return uint64(p.number("node-id", text, 1, nodeIDMax))
	}
	ids, err := ParseNodeIDs(exceptions)
	if err != nil || strings.HasSuffix(text, ",") {
		p.faults.add("node-id", text, "want ordinal, or ordinal,ORDINAL=ID,...: "+fmt.Sprint(err))
		return 0
	}
	host, err := hostname()
	var id uint64
	if err == nil {
		id, err = ordinalID(host)
	}
	if err != nil {
		p.faults.add("node-id", text, fmt.Sprintf("want a host name that ends in the ordinal: %v", err))
		return 0
	}
	return ids.Of(id - 1)
}

// NodeIDs has the IDs of nodes that do not follow from the ordinals of their machines: of those whose
// usual ID was removed, and can never be used again. Nil has none.
type NodeIDs map[uint64]uint64

// ParseNodeIDs parses entries ORDINAL=ID with commas between them. An ID is above 64, so that it is not
// that of another ordinal. No text means none.
func ParseNodeIDs(text string) (NodeIDs, error) {
	if text == "" {
		return nil, nil
	}
	ids, taken := NodeIDs{}, map[uint64]bool{}
	for entry := range strings.SplitSeq(text, ",") {
		left, right, _ := strings.Cut(entry, "=")
		ordinal, isOrdinal := within(left, 0, srvCountMax-1)
		id, isID := within(right, srvCountMax+1, nodeIDMax)
		switch {
		case !isOrdinal || !isID:
			return nil, fmt.Errorf("%q is not ORDINAL=ID with an ordinal from 0 to %d and an ID of %d or more", entry, srvCountMax-1, srvCountMax+1)
		case ids[uint64(ordinal)] != 0 || taken[uint64(id)]:
			return nil, fmt.Errorf("%q has an ordinal or an ID for the second time", entry)
		}
		ids[uint64(ordinal)], taken[uint64(id)] = uint64(id), true
	}
	return ids, nil
}

// Of returns the ID of the node with an ordinal: one more, unless it has another one.
func (n NodeIDs) Of(ordinal uint64) uint64 {
	if id := n[ordinal]; id != 0 {
		return id
	}
	return ordinal + 1
}
