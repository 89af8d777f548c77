package front

import "time"

// Security is who may reach a node, and how it knows them, so that nodes can be compared. It has
// no secret, and no hash of one.
type Security struct {
	NodeID uint64 `json:"nodeID"`
	// Users is the list of users in force; nil without ACL_FILE.
	Users *UserList `json:"users"`
	// ClientCA is set with TLS_CLIENT_CA.
	ClientCA bool `json:"clientCA"`
	// PeersInClear is set if peers on other machines may speak in plaintext (PEER_INSECURE).
	PeersInClear bool `json:"peersInClear"`
	// MovedTime has how often each user has moved time ahead of the clock by the floor of a request, since the node started.
	MovedTime map[string]uint64 `json:"movedTime,omitempty"`
	// RefusedHere is how many requests of operators came from a loopback address without credentials, and were refused,
	// since the node started.
	RefusedHere uint64 `json:"refusedHere,omitempty"`
	// Peers has the certificates for peers; nil without.
	Peers *PeerCertificates `json:"peers"`
}

// UserList identifies a list of users.
type UserList struct {
	// SHA256 is that of the file, in hexadecimal, as isotone user check prints it.
	SHA256 string `json:"sha256"`
	Users  int    `json:"users"`
	// Refused is set while the file has another list, which cannot be used.
	Refused bool `json:"refused,omitempty"`
}

// PeerCertificates is what a node shows its peers, and what it accepts from them.
type PeerCertificates struct {
	// Names are those in the node's certificate that may stand for a node; AllowedNames is what
	// PEER_ALLOWED_NAMES is set to, empty for the default.
	Names        []string `json:"names"`
	AllowedNames string   `json:"allowedNames"`
	// NotBefore and NotAfter bound the validity of the chain of the certificate.
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	// Revoked is set if the certificate is on one of the node's own lists.
	Revoked bool `json:"revoked,omitempty"`
	// SignedBy is the authority at the end of the chain.
	SignedBy string `json:"signedBy"`
	// Authorities are those in PEER_TLS_CA, Lists those in PEER_TLS_CRL.
	Authorities []Authority      `json:"authorities"`
	Lists       []RevocationList `json:"lists"`
}

// Authority is the certificate of an authority.
type Authority struct {
	SHA256   string    `json:"sha256"` // of the certificate, in hexadecimal
	Subject  string    `json:"subject"`
	NotAfter time.Time `json:"notAfter"`
}

// RevocationList is a list of revoked certificates.
type RevocationList struct {
	Issuer  string `json:"issuer"`
	SHA256  string `json:"sha256"` // of the list, in hexadecimal
	Revoked int    `json:"revoked"`
	// ThisUpdate is when it was made. NextUpdate is when a newer one was announced for; the zero
	// time for none. The list counts after that as well.
	ThisUpdate time.Time `json:"thisUpdate"`
	NextUpdate time.Time `json:"nextUpdate"`
}
