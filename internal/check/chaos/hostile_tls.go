//go:build linux

package chaos

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net"
	"strings"
)

// clientHello returns the first record of a TLS client.
func clientHello() []byte {
	near, far := net.Pipe()
	defer far.Close()
	go func() {
		_ = tls.Client(near, &tls.Config{InsecureSkipVerify: true}).Handshake() // it ends with the pipe
	}()
	b := make([]byte, 16<<10)
	n, _ := far.Read(b)
	return b[:n]
}

// silentHello begins a handshake that it does not go on with, and opens another connection the
// next time.
func silentHello(c *hostileConn) error {
	if c.step > 1 {
		return errAgain
	}
	return c.send(string(c.hello))
}

// handshakes does one after the other.
func handshakes(c *hostileConn) error {
	if err := tls.Client(c.conn, &tls.Config{InsecureSkipVerify: true}).Handshake(); err != nil {
		return err
	}
	c.served.Add(1)
	return errAgain
}

// renegotiate asks for another handshake within TLS 1.2. Go's client cannot do that, so the record
// is made here, from the keys of the connection. The node has to end the connection, after an alert
// if it likes.
func renegotiate(c *hostileConn) error {
	var keys bytes.Buffer
	wire := &recordedConn{Conn: c.conn}
	inside := tls.Client(wire, &tls.Config{
		InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, KeyLogWriter: &keys,
		CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
	})
	if err := inside.Handshake(); err != nil {
		return err
	}
	record, err := renegotiation(keys.String(), wire.read.Bytes(), c.hello)
	if err != nil {
		return err
	}
	if _, err := c.conn.Write(record); err != nil {
		return err
	}
	// Another alert, as bad_record_mac, would be about this record, not about what it asks for.
	_, err = inside.Read(make([]byte, 1))
	switch alert := tls.AlertError(0); {
	case errors.As(err, &alert), err != nil && strings.Contains(err.Error(), "unexpected message"):
		c.refused.Add(1)
		return errAgain
	}
	return err
}

// recordedConn remembers what was read.
type recordedConn struct {
	net.Conn
	read bytes.Buffer
}

func (c *recordedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Write(b[:n])
	return n, err
}

var errRecord = errors.New("chaos: the handshake cannot be read")

// renegotiation returns the record with which a client begins a second handshake: the first after
// its Finished, encrypted with AES-128-GCM (RFC 5246 §6.3, RFC 5288 §3). The keys are a key log,
// and server is all that the server sent.
func renegotiation(keys string, server, hello []byte) ([]byte, error) {
	const (
		recordHead, randomAt, randomBytes = 5, 5 + 4 + 2, 32
		handshake                         = 22
		keyBytes, ivBytes                 = 16, 4
		sequence                          = 1
	)
	fields := strings.Fields(keys)
	if len(fields) != 3 || fields[0] != "CLIENT_RANDOM" || len(server) < randomAt+randomBytes {
		return nil, errRecord
	}
	random, err1 := hex.DecodeString(fields[1])
	master, err2 := hex.DecodeString(fields[2])
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	seed := append(append([]byte("key expansion"), server[randomAt:][:randomBytes]...), random...)
	block := expand(master, seed, 2*(keyBytes+ivBytes))
	aead, err := aes.NewCipher(block[:keyBytes])
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(aead)
	if err != nil {
		return nil, err
	}
	message := hello[recordHead:]
	explicit := binary.BigEndian.AppendUint64(nil, sequence)
	nonce := append(bytes.Clone(block[2*keyBytes:][:ivBytes]), explicit...)
	additional := append(bytes.Clone(explicit), handshake, 3, 3)
	additional = binary.BigEndian.AppendUint16(additional, uint16(len(message)))
	sealed := gcm.Seal(explicit, nonce, message, additional)
	record := binary.BigEndian.AppendUint16([]byte{handshake, 3, 3}, uint16(len(sealed)))
	return append(record, sealed...), nil
}

// expand is P_SHA256 (RFC 5246 §5).
func expand(secret, seed []byte, n int) (out []byte) {
	sum := func(parts ...[]byte) []byte {
		mac := hmac.New(sha256.New, secret)
		for _, p := range parts {
			mac.Write(p)
		}
		return mac.Sum(nil)
	}
	for a := sum(seed); len(out) < n; a = sum(a) {
		out = append(out, sum(a, seed)...)
	}
	return out[:n]
}
