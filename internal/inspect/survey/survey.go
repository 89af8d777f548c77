package survey

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// defaultPort is the default of HTTP_PORT.
const defaultPort = "8080"

// surveyMembersMax bounds the members that one survey asks, far above any size of a cluster.
const surveyMembersMax = 64

// Survey asks all members of a cluster for their state.
type Survey struct {
	// Client sends the requests; nil means http.DefaultClient.
	Client *http.Client
	// Timeout bounds each answer. It must be set.
	Timeout time.Duration
}

// View is the answer of one member.
type View struct {
	NodeID uint64 `json:"nodeID"` // 0 if unknown
	Addr   string `json:"addr"`   // the URL that was asked
	Error  string `json:"error,omitempty"`
	// Refused is set if the node runs, and does not accept the credentials.
	Refused *Refusal `json:"-"`
	// State is nil if and only if Error is set. It has no History.
	State *State `json:"state"`
}

// Report has the answers of all members.
type Report struct {
	At time.Time `json:"at"`
	// Leader is nil if no member knows a leader of the highest term in the answers.
	Leader *Leader `json:"leader"`
	Term   uint64  `json:"term"`
	// Problems is empty if there is a leader and every member answers and is ready.
	Problems []string `json:"problems"`
	// Warnings are about members whose clocks timestamps do not follow. They do not keep the
	// cluster from serving.
	Warnings []string `json:"warnings"`
	Views    []View   `json:"members"`
	// Strangers says of each address that was named and is that of no member why it is not. They are among the problems.
	Strangers []string `json:"-"`
}

// Address returns the URL of a node, without a path, for host:port, a host (then the port is
// 8080), or an http or https URL.
func Address(text string) (string, error) {
	scheme, rest := "http", text
	if before, after, ok := strings.Cut(text, "://"); ok {
		scheme, rest = strings.ToLower(before), strings.TrimSuffix(after, "/")
	}
	if scheme != "http" && scheme != "https" {
		return "", fmt.Errorf("%q: want host:port, or an http or https URL", text)
	}
	if _, _, err := net.SplitHostPort(rest); err != nil {
		rest = net.JoinHostPort(strings.Trim(rest, "[]"), defaultPort)
	}
	u, err := url.Parse(scheme + "://" + rest)
	if err != nil || u.Host != rest || u.Hostname() == "" || u.Port() == "" || u.User != nil {
		return "", fmt.Errorf("%q: want host:port, or an http or https URL without a path", text)
	}
	return u.String(), nil
}

// Ask asks the given nodes concurrently, and then all other members that they know. It returns
// an error only for an invalid address; nodes that do not answer are in the report.
func (y Survey) Ask(ctx context.Context, addrs []string) (*Report, error) {
	var first []View
	scheme := ""
	for _, addr := range addrs {
		base, err := Address(addr)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(first, func(v View) bool { return v.Addr == base }) {
			first = append(first, View{Addr: base})
		}
		if scheme == "" {
			scheme, _, _ = strings.Cut(base, "://") // for members too: both are on one port
		}
	}
	y.askAll(ctx, first)
	r := &Report{At: time.Now().UTC(), Problems: []string{}, Warnings: []string{}}
	cluster := clusterOf(first)
	first = slices.DeleteFunc(first, func(v View) bool { return r.isForeign(v, cluster) })
	views, members := merge(first, scheme)
	views = slices.DeleteFunc(views, func(v View) bool { return r.isNobody(v, cluster) })
	missing := unasked(views, members, scheme)
	y.askAll(ctx, missing)
	views = append(views, missing...)
	slices.SortFunc(views, func(a, b View) int { return cmp.Or(cmp.Compare(a.NodeID, b.NodeID), strings.Compare(a.Addr, b.Addr)) })
	r.Views = views
	r.judge()
	return r, nil
}

// clusterOf returns the cluster of the first node that tells one; "" if none does, as while a cluster is being formed.
func clusterOf(views []View) string {
	for _, v := range views {
		if v.State != nil && v.State.ClusterID != "" {
			return v.State.ClusterID
		}
	}
	return ""
}

// isForeign reports whether a node is of another cluster, and notes that.
func (r *Report) isForeign(v View, cluster string) bool {
	if v.State == nil || v.State.ClusterID == "" || v.State.ClusterID == cluster {
		return false
	}
	r.Strangers = append(r.Strangers, fmt.Sprintf("%s is no member of cluster %s: node %d of cluster %s answers there", v.Addr, or(cluster), v.NodeID, or(v.State.ClusterID)))
	return true
}

// isNobody reports whether nothing answers at an address that no member has, and notes that.
func (r *Report) isNobody(v View, cluster string) bool {
	if v.State != nil || v.NodeID != 0 || cluster == "" || v.answersOtherwise() {
		return false
	}
	r.Strangers = append(r.Strangers, fmt.Sprintf("%s: no member of this cluster has this client address, and nothing answers there: %s", v.Addr, or(v.Error)))
	return true
}

// twins names nodes with the same ID, which can be while there is no cluster.
func (r *Report) twins() (problems []string) {
	for i := 1; i < len(r.Views); i++ { // they are sorted
		a, b := r.Views[i-1], r.Views[i]
		if a.State != nil && b.State != nil && a.NodeID == b.NodeID && a.State.ClusterID == b.State.ClusterID {
			problems = append(problems, fmt.Sprintf("node %d answers at %s and at %s, as two processes: each node needs a NODE_ID of its own", a.NodeID, a.Addr, b.Addr))
		}
	}
	return problems
}

// answersOtherwise reports whether something answers that does not tell its state, for a reason that has its own words.
func (v *View) answersOtherwise() bool {
	return v.Refused != nil || v.Error == errNoNode.Error() || v.Error == ErrPeerPort.Error()
}

// merge drops nodes that answered under a second address, identifies silent ones by the
// answers of others, and returns all known members.
func merge(views []View, scheme string) (merged []View, members []Member) {
	seen := map[uint64]bool{}
	for _, v := range views {
		if v.State == nil || len(members) >= surveyMembersMax {
			continue
		}
		for _, m := range v.State.Members {
			if !seen[m.NodeID] {
				seen[m.NodeID] = true
				members = append(members, m)
			}
		}
	}
	answered := map[uint64]bool{}
	type identity struct {
		cluster, addr string // the address only while there is no cluster
		node          uint64
	}
	answers := map[identity]bool{} // two clusters may have nodes with one ID, and two machines one by mistake
	for _, v := range views {
		if v.State == nil {
			continue
		}
		id := identity{cluster: v.State.ClusterID, node: v.NodeID}
		if id.cluster == "" {
			id.addr = v.State.Node.Addr
		}
		if !answers[id] {
			answers[id], answered[v.NodeID] = true, true
			merged = append(merged, v)
		}
	}
	for _, v := range views {
		if v.State != nil {
			continue
		}
		for _, m := range members {
			if sameAddress(scheme+"://"+m.Addr, v.Addr) {
				v.NodeID = m.NodeID
			}
		}
		if v.NodeID == 0 || !answered[v.NodeID] {
			answered[v.NodeID] = v.NodeID != 0
			merged = append(merged, v)
		}
	}
	return merged, members[:min(len(members), surveyMembersMax)]
}

// sameAddress reports whether two URLs name the same node as text tells: those of this machine have several
// forms.
func sameAddress(a, b string) bool {
	local := strings.NewReplacer("://127.0.0.1:", "://localhost:", "://[::1]:", "://localhost:")
	return local.Replace(a) == local.Replace(b)
}

// unasked returns the members that are not among views.
func unasked(views []View, members []Member, scheme string) (missing []View) {
	for _, m := range members {
		if slices.ContainsFunc(views, func(v View) bool { return v.NodeID == m.NodeID }) {
			continue
		}
		v := View{NodeID: m.NodeID}
		if m.Addr != "" {
			v.Addr = scheme + "://" + m.Addr
		}
		missing = append(missing, v)
	}
	return missing
}

// askAll asks the nodes of all views concurrently.
func (y Survey) askAll(ctx context.Context, views []View) {
	var asking sync.WaitGroup
	for i := range views {
		asking.Go(func() { y.ask(ctx, &views[i]) })
	}
	asking.Wait()
}

func (y Survey) ask(ctx context.Context, v *View) {
	if v.Addr == "" {
		v.Error = "no client address is known"
		return
	}
	s, err := y.fetch(ctx, v.Addr)
	if err == nil && v.NodeID != 0 && v.NodeID != s.Node.ID {
		err = fmt.Errorf("node %d answers at its address", s.Node.ID)
	}
	if err != nil {
		v.Error = err.Error()
		_ = errors.As(err, &v.Refused)
		return
	}
	s.History = nil
	v.NodeID, v.State = s.Node.ID, s
}

// Get asks the node of a view for another of its documents, in JSON.
func (y Survey) Get(ctx context.Context, v View, path string, into any) error {
	err := y.get(ctx, v.Addr, path, func(body io.Reader) error {
		return json.NewDecoder(io.LimitReader(body, StateBytesMax)).Decode(into)
	})
	if errors.Is(err, errNoNode) { // it is one
		return fmt.Errorf("it has no %s; perhaps it runs an older version", path)
	}
	return err
}

// errNoNode: the answer does not come from a node.
var errNoNode = errors.New("answers, but is not a node (perhaps a proxy); name a node instead")

// ErrPeerPort is the error of a Client for an address at which a node answers the other members.
var ErrPeerPort = errors.New("this is a peer port (RAFT_ADDR); name the client port, HTTP_PORT")

// fetch reads the state document of one node.
func (y Survey) fetch(ctx context.Context, base string) (s *State, err error) {
	err = y.get(ctx, base, "/state", func(body io.Reader) (err error) {
		s, err = ReadState(body)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case s.Node.ID == 0:
		return nil, fmt.Errorf("not a state document: it has no node ID")
	}
	return s, nil
}

// get reads the answer of a node to a request for a path.
func (y Survey) get(ctx context.Context, base, path string, read func(body io.Reader) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, y.Timeout, fmt.Errorf("no answer within %v", y.Timeout))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return err
	}
	client := cmp.Or(y.Client, http.DefaultClient)
	response, err := client.Do(request)
	if err != nil {
		return plain(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		return errNoNode
	}
	if refused := ReadRefusal(response); refused != nil {
		return refused
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", path, response.Status)
	}
	if err := read(response.Body); err != nil {
		return plain(ctx, err)
	}
	return nil
}

// plain removes the URL from an error, because the table shows it.
func plain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if wrapped, ok := err.(*url.Error); ok {
		err = wrapped.Err
	}
	if errors.As(err, new(*tls.CertificateVerificationError)) {
		return fmt.Errorf("%w (--insecure accepts any certificate, --ca FILE those signed by a CA in FILE)", err)
	}
	return err
}

// judge sets the leader, the problems and the warnings.
func (r *Report) judge() {
	for _, v := range r.Views {
		if v.State == nil {
			continue
		}
		newer := v.State.Term > r.Term
		if newer || v.State.Term == r.Term && r.Leader == nil {
			r.Term, r.Leader = v.State.Term, v.State.Leader
		}
	}
	forming := r.forming()
	if r.Leader == nil && !forming && !r.untold() {
		r.Problems = append(r.Problems, "no leader is known")
	}
	if clusters := r.clusters(); len(clusters) > 1 {
		r.Problems = append(r.Problems, "the nodes belong to different clusters: "+strings.Join(clusters, ", "))
	}
	r.Problems = append(append(r.Problems, r.Strangers...), r.twins()...)
	for _, v := range r.Views {
		switch {
		case v.State == nil && v.Error == errNoNode.Error():
			r.Problems = append(r.Problems, v.Addr+" "+v.Error)
		case v.Error == ErrPeerPort.Error():
			r.Problems = append(r.Problems, v.Addr+": "+v.Error)
		case v.Refused != nil:
			r.Problems = append(r.Problems, v.name()+" "+v.Error)
		case v.State == nil && v.Addr == "" && forming:
			// Client addresses become known later; the others report which members they lack.
		case v.State == nil:
			problem := v.name() + " does not answer: " + or(v.Error)
			if _, connected := r.asSeenByLeader(v.NodeID); connected {
				problem += "; it is connected to the leader"
			}
			r.Problems = append(r.Problems, problem)
		case !v.State.Node.Ready:
			r.Problems = append(r.Problems, v.name()+" is not ready: "+or(v.State.Node.NotReady))
		}
		if warning := r.clockWarning(v); warning != "" {
			r.Warnings = append(r.Warnings, warning)
		}
	}
	r.Warnings = append(append(r.Warnings, r.intervalWarnings()...), r.addressWarnings()...)
}

// untold reports whether no node has told anything, and it may all the same have a leader: the credentials or the address are
// wrong.
func (r *Report) untold() bool {
	return !slices.ContainsFunc(r.Views, func(v View) bool { return v.State != nil }) &&
		slices.ContainsFunc(r.Views, func(v View) bool { return v.Refused != nil || v.Error == ErrPeerPort.Error() })
}

// forming reports whether the members that answer are still forming the cluster.
func (r *Report) forming() bool {
	answered := false
	for _, v := range r.Views {
		if v.State != nil && !v.State.Node.Forming {
			return false
		}
		answered = answered || v.State != nil
	}
	return answered
}

// clockWarning warns that timestamps do not follow a member's clock, as reported by that
// member or else by any other. It returns "" if there is nothing to warn of.
func (r *Report) clockWarning(of View) string {
	if of.State != nil {
		return of.State.clockWarning(Member{NodeID: of.NodeID, Self: true})
	}
	for _, v := range r.Views {
		if v.State == nil || of.NodeID == 0 {
			continue
		}
		for _, m := range v.State.Members {
			if warning := v.State.clockWarning(m); m.NodeID == of.NodeID && warning != "" {
				return warning
			}
		}
	}
	return ""
}

// clusters returns the cluster IDs that the members report, sorted.
func (r *Report) clusters() (ids []string) {
	for _, v := range r.Views {
		if v.State != nil && v.State.ClusterID != "" {
			ids = append(ids, or(v.State.ClusterID))
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (v View) name() string {
	if v.NodeID == 0 {
		return "the node at " + v.Addr
	}
	return fmt.Sprintf("node %d", v.NodeID)
}

// Err returns an error that lists all problems, or nil.
func (r *Report) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(r.Problems, "; "))
}
