package access

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
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
	hashBytesMax     = 64
)

// SecretMax bounds a secret, in bytes.
const SecretMax = 256

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
	encode := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memory, h.passes, h.threads, encode(h.salt), encode(h.sum))
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

// parseHash reads the form of HashSecret. Its errors never contain the text.
func parseHash(text string) (h hash, err error) {
	parts := strings.Split(text, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return h, errHash
	}
	var rest string
	if n, _ := fmt.Sscanf(parts[3]+" .", "m=%d,t=%d,p=%d %s", &h.memory, &h.passes, &h.threads, &rest); n != 4 || rest != "." {
		return h, errHash
	}
	if h.memory > hashMemoryKiBMax || h.passes < 1 || h.passes > hashPassesMax || h.threads < 1 || h.threads > hashThreadsMax ||
		h.memory < 8*uint32(h.threads) {
		return h, fmt.Errorf("the hash has a cost of m=%d,t=%d,p=%d; at most m=%d,t=%d,p=%d is accepted",
			h.memory, h.passes, h.threads, hashMemoryKiBMax, hashPassesMax, hashThreadsMax)
	}
	decode := base64.RawStdEncoding.Strict().DecodeString
	if h.salt, err = decode(parts[4]); err != nil || len(h.salt) < 8 || len(h.salt) > hashBytesMax {
		return h, errHash
	}
	if h.sum, err = decode(parts[5]); err != nil || len(h.sum) < 16 || len(h.sum) > hashBytesMax {
		return h, errHash
	}
	return h, nil
}
