package doctor

import (
	"time"

	"github.com/isotone/isotone/internal/front"
	"github.com/isotone/isotone/internal/inspect/survey"
)

// Measurements is what [Judge] works on. Fields that could not be measured are nil, zero, or
// have an error text, as each says.
type Measurements struct {
	At time.Time
	// Local is about the machine on which a node runs or is to run; nil on any other machine.
	Local *Local
	// Cluster is nil if no endpoint answers.
	Cluster *Cluster
	// Endpoints are the addresses that were named, empty if none was. Unanswered says why none
	// of them, or of those that were tried instead, answers.
	Endpoints  []string
	Unanswered string
	// Refused is set if a node has answered, and does not accept the credentials.
	Refused *survey.Refusal
}

// Local is what was measured on the machine of one node.
type Local struct {
	Settings  Settings
	Disk      Disk
	Clock     Clock
	Files     Certificate
	ClientCA  Certificate // zero without TLS_CLIENT_CA
	Trust     *Trust      // nil: not looked at
	Limits    Limits
	Listeners []Listener
	// Names has the host names in the settings.
	Names []Name
	// Advertised and Peers are connections from this machine to ADVERTISE_ADDR, if a node is
	// running, and to the addresses of the other nodes in PEERS.
	Advertised *Dial
	Peers      []Dial
}

// Settings are those of the settings of a node that are judged.
type Settings struct {
	NodeID  uint64
	DataDir string
	// DataNode is the node whose data is in DataDir, 0 if none is known. DataError says why it cannot be read.
	DataNode      uint64
	DataError     string
	AdvertiseAddr string // as clients are told it
	RaftAddr      string
	Peers         map[uint64]string // nil: this node alone, or Join
	Join          []string
	// Loops is the number of I/O loops, and Workers that of the worker IDs that the node leases.
	// WorkersMax is how many IDs of workers there are.
	Loops, Workers, WorkersMax int
	// Misspelled says of each environment variable that is almost a setting which one that is.
	Misspelled []string
}

// Disk is the directory of a node's data.
type Disk struct {
	// Dir is the directory that was measured: DATA_DIR, or its nearest parent that exists.
	Dir string
	// Missing says that DATA_DIR does not exist, and HasData that it has a data file.
	Missing, HasData bool
	Error            string // why nothing was measured, else empty
	// Free is in bytes, FreeFiles the number of files that can be created; each counts only if
	// it is known.
	Free, FreeFiles           uint64
	FreeKnown, FreeFilesKnown bool
	// Writes is how many small writes were synced; P50 and P99 are how long they took. WriteError
	// is why they ended early.
	Writes     int
	P50, P99   time.Duration
	WriteError string
}

// Clock is this machine's clock.
type Clock struct {
	// Known says that the system tells whether it is synchronized.
	Known, Synchronized bool
	// ErrorMax is the largest error of the clock that the system reckons with.
	ErrorMax time.Duration
	// Ahead is how far this clock is ahead of the nodes' by the Date of their answers, which
	// has whole seconds; if AheadKnown.
	Ahead      time.Duration
	AheadKnown bool
}

// Certificate is a certificate with its key, from files or as a node presents it.
type Certificate struct {
	// Set says that files were named in settings, and Exists that there are any.
	Set, Exists bool
	// File names it.
	File  string
	Error string // why it cannot be used, else empty
	// NotBefore and NotAfter are those of the certificate that ends first.
	NotBefore, NotAfter time.Time
	// Host is the name that clients use; HostError is why the certificate does not cover it.
	Host, HostError string
	// KeyReadable says that others than its owner may read the file of the key.
	KeyReadable bool
}

// Limits are those of this process and this machine, as a node started here would have them.
type Limits struct {
	Files      uint64 // RLIMIT_NOFILE; 0 if unknown
	Backlog    int    // net.core.somaxconn; 0 if unknown
	Processors int    // GOMAXPROCS
	// Memory is what is available, in bytes, within the limit of the control group; 0 if unknown.
	Memory uint64
}

// Listener is an address that a node listens on.
type Listener struct {
	Setting, Network, Addr string
	// Optional says that the node goes on without it.
	Optional bool
	Free     bool
	InUse    bool
	Error    string // why it can be bound neither now nor later, else empty
	// Owner is the ID of the node that answers HTTP requests there, 0 for none. Waiting is what
	// a node answers that waits to join a cluster.
	Owner   uint64
	Waiting string
}

// Name is a host name in a setting.
type Name struct {
	Setting, Host string
	Addrs         []string
	Error         string // why it does not resolve, else empty
}

// Dial is a connection that was tried from this machine.
type Dial struct {
	NodeID uint64
	Addr   string
	Error  string // empty if it was opened
}

// Cluster is what the nodes say of themselves and of one another.
type Cluster struct {
	Report *survey.Report
	// Nodes are parallel to Report.Views.
	Nodes []NodeProbe
	// Levels and Members are those of the leader; nil if it was not reached.
	Levels  *front.Levels
	Members *front.MemberList
	// Groups are those of timelines, as the leader has them; nil if there are none, or it does not tell.
	Groups *front.GroupList
}

// NodeProbe is what was measured of one node beside its state document.
type NodeProbe struct {
	// Client and Peer are connections from this machine to the addresses that the cluster has on
	// record; nil without an address.
	Client, Peer *Dial
	// Ready is the status of the answer to GET /ready, 0 without an answer; ReadyText is its body,
	// or why there is none.
	Ready     int
	ReadyText string
	// Served is the certificate that it presents; nil if it presented none.
	Served *Certificate
	// Security is who may reach it; nil if it does not tell.
	Security *front.Security
	// LastMove is the latest move of time far ahead of the clock that it has seen; nil if there was none, or it does not tell.
	LastMove *survey.Move
	// FilesOpen and FilesMax are its open files and their limit; 0 if unknown.
	FilesOpen, FilesMax uint64
}
