package access

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/crypto/argon2"
)

// The cost of a new hash: the second of the choices that RFC 9106, section 4 calls sufficient
// when memory is short, with OWASP's figures. It takes some 20 ms and 19 MiB.
const (
	hashMemoryKiB = 19 << 10
	hashPasses    = 2
	hashThreads   = 1
	hashBytes     = 32
	saltBytes     = 16
)

// Bounds of the hashes that are accepted, so that a list of users cannot take the node's memory
// or time.
const (
	hashMemoryKiBMax = 256 << 10
	hashPassesMax    = 16
	hashThreadsMax   = 4
	hashBytesMax     = 64 // of the salt too
	saltBytesMin     = 8
	hashBytesMin     = 16
)

// hashPrefix begins every hash: the function, and its version.
var hashPrefix = fmt.Sprintf("$argon2id$v=%d$", argon2.Version)

// hash is a secret that went through Argon2id (RFC 9106).
type hash struct {
	memory, passes uint32
	threads        uint8
	salt, sum      []byte
}

// HashSecret returns a hash of secret with a random salt, in the form
// $argon2id$v=19$m=19456,t=2,p=1$SALT$HASH (the PHC string format).
func HashSecret(secret string) string {
	h := hash{memory: hashMemoryKiB, passes: hashPasses, threads: hashThreads, salt: make([]byte, saltBytes), sum: make([]byte, hashBytes)}
	_, _ = rand.Read(h.salt) // never fails
	h.sum = h.of(secret)
	return h.String()
}

// String returns the one text that parseHash reads as h.
func (h *hash) String() string {
	encode := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("%sm=%d,t=%d,p=%d$%s$%s", hashPrefix, h.memory, h.passes, h.threads, encode(h.salt), encode(h.sum))
}

// NewSecret returns a random secret of 32 letters and digits, '-' and '_': 192 bits.
func NewSecret() string {
	b := make([]byte, 24)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

func (h *hash) of(secret string) []byte {
	return argon2.IDKey([]byte(secret), h.salt, h.passes, h.memory, h.threads, uint32(len(h.sum)))
}

// matches compares in constant time. It takes as long as the hash says.
func (h *hash) matches(secret string) bool {
	return subtle.ConstantTimeCompare(h.of(secret), h.sum) == 1
}

var errHash = errors.New(`want a hash of Argon2id, "$argon2id$v=19$m=…,t=…,p=…$salt$hash", as isotone user hash prints it`)

// hashTextMax bounds the text of a hash in bytes. One with the largest numbers has 207.
const hashTextMax = 256

// parseHash reads the form of HashSecret, in one spelling only. It allocates no more than a salt
// and a sum, whatever costs the text names; a cost beyond the bounds is an error. Its errors never
// contain the text.
func parseHash(text string) (h hash, err error) {
	rest, ok := strings.CutPrefix(text, hashPrefix)
	if !ok || len(text) > hashTextMax {
		return hash{}, errHash
	}
	cost, rest, _ := strings.Cut(rest, "$")
	salt, sum, ok := strings.Cut(rest, "$")
	if !ok || !h.parseCost(cost) {
		return hash{}, errHash
	}
	if h.memory < 8*uint32(h.threads) || h.memory > hashMemoryKiBMax || h.passes < 1 || h.passes > hashPassesMax || h.threads < 1 || h.threads > hashThreadsMax {
		return hash{}, fmt.Errorf("the hash has a cost of m=%d,t=%d,p=%d; at least m=8·p,t=1,p=1 and at most m=%d,t=%d,p=%d is accepted",
			h.memory, h.passes, h.threads, hashMemoryKiBMax, hashPassesMax, hashThreadsMax)
	}
	if h.salt, ok = decodeHash(salt, saltBytesMin); !ok {
		return hash{}, errHash
	}
	if h.sum, ok = decodeHash(sum, hashBytesMin); !ok {
		return hash{}, errHash
	}
	return h, nil
}

// parseCost reads m=…,t=…,p=….
func (h *hash) parseCost(text string) bool {
	m, rest, _ := strings.Cut(text, ",")
	t, p, _ := strings.Cut(rest, ",")
	memory, ok1 := parseCostOf("m=", m, 32)
	passes, ok2 := parseCostOf("t=", t, 32)
	threads, ok3 := parseCostOf("p=", p, 8)
	h.memory, h.passes, h.threads = uint32(memory), uint32(passes), uint8(threads)
	return ok1 && ok2 && ok3
}

// parseCostOf reads a number after its name: digits without leading zeros.
func parseCostOf(name, text string, bits int) (uint64, bool) {
	digits, ok := strings.CutPrefix(text, name)
	n, err := strconv.ParseUint(digits, 10, bits)
	return n, ok && err == nil && (digits[0] != '0' || digits == "0")
}

// decodeHash decodes base64 of at least atLeast and at most hashBytesMax bytes. The decoder
// would skip line breaks.
func decodeHash(text string, atLeast int) ([]byte, bool) {
	b, err := base64.RawStdEncoding.Strict().DecodeString(text)
	return b, err == nil && !strings.ContainsAny(text, "\r\n") && len(b) >= atLeast && len(b) <= hashBytesMax
}
