package secure

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// wire is the client's end of a session without a network: what the client writes waits in
// sent, until the test gives it to the session.
type wire struct {
	net.Conn // nil: nothing else is used
	mu       sync.Mutex
	more     sync.Cond
	sent     []byte
	got      []byte
	ended    bool
	shaking  func([]byte) // takes what is sent, while that is not nil
}

func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shaking != nil {
		w.shaking(p)
	} else {
		w.sent = append(w.sent, p...)
	}
	return len(p), nil
}

func (w *wire) Read(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.got) == 0 && !w.ended {
		w.more.Wait()
	}
	if len(w.got) == 0 {
		return 0, io.EOF
	}
	n := copy(p, w.got)
	w.got = w.got[n:]
	return n, nil
}

func (w *wire) SetWriteDeadline(time.Time) error { return nil }
func (w *wire) Close() error                     { return nil }

// give lets the client read b.
func (w *wire) give(b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.got = append(w.got, b...)
	w.more.Signal()
}

// take returns what the client has written.
func (w *wire) take() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.sent
	w.sent = nil
	return b
}

// certificate returns a self-signed certificate.
func certificate(t testing.TB) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"x"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// shake returns both ends of a session that has shaken hands.
func shake(t testing.TB, version uint16) (s *session, client *tls.Conn, w *wire) {
	t.Helper()
	w = &wire{}
	w.more.L = &w.mu
	var sock socket
	sock.init(func(bool) { w.give(sock.takeOutput()) })
	w.shaking = sock.addInput
	server := tls.Server(&sock, &tls.Config{Certificates: []tls.Certificate{certificate(t)}})
	client = tls.Client(w, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
	done := make(chan error, 1)
	go func() {
		err := server.Handshake()
		w.give(sock.takeOutput())
		done <- err
	}()
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	w.shaking = nil
	s = &session{tls: server, socket: &sock}
	if left := sock.enterLoop(w.give); len(left) != 0 {
		t.Fatalf("the handshake has left %d bytes", len(left))
	}
	return s, client, w
}

var versions = map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13}

func TestSession_OpensWhatCameHoweverItIsCut(t *testing.T) {
	for name, version := range versions {
		t.Run(name, func(t *testing.T) {
			s, client, w := shake(t, version)
			random := mathrand.New(mathrand.NewPCG(1, 2))
			for range 30 {
				var said []byte
				for range 1 + random.IntN(5) {
					message := make([]byte, 1+random.IntN(40_000)>>random.IntN(10))
					_, _ = rand.Read(message)
					said = append(said, message...)
					if _, err := client.Write(message); err != nil {
						t.Fatal(err)
					}
				}
				var plain []byte
				for raw := w.take(); len(raw) > 0; {
					n := min(len(raw), 1+random.IntN(30_000)>>random.IntN(15))
					var err error
					if plain, err = s.Open(plain, bytes.Clone(raw[:n])); err != nil {
						t.Fatal(err)
					}
					if raw = raw[n:]; s.Partial() && len(raw) == 0 {
						t.Error("something is left")
					}
				}
				if !bytes.Equal(plain, said) {
					t.Fatalf("%d bytes, want %d", len(plain), len(said))
				}
			}
		})
	}
}

func TestSession_KnowsThatARecordHasBegun(t *testing.T) {
	s, client, w := shake(t, tls.VersionTLS13)
	_, _ = client.Write([]byte("hello"))
	raw := w.take()
	for i := range raw {
		plain, err := s.Open(nil, raw[i:i+1])
		whole := i == len(raw)-1
		if err != nil || whole != (string(plain) == "hello") || whole == s.Partial() {
			t.Fatalf("byte %d of %d: %q, %v, %v", i, len(raw), plain, err, s.Partial())
		}
	}
}

func TestSession_SealsWhatTheClientReads(t *testing.T) {
	for name, version := range versions {
		t.Run(name, func(t *testing.T) {
			s, client, _ := shake(t, version)
			for _, n := range []int{1, 100, 5000, 100_000} {
				said := make([]byte, n)
				_, _ = rand.Read(said)
				if err := s.Seal(said); err != nil {
					t.Fatal(err)
				}
				heard := make([]byte, n)
				if _, err := io.ReadFull(client, heard); err != nil || !bytes.Equal(heard, said) {
					t.Fatalf("%d bytes: %v", n, err)
				}
			}
			s.End()
			if n, err := client.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("after the end: %d, %v", n, err)
			}
		})
	}
}

func TestSession_TellsTheEnd(t *testing.T) {
	s, client, w := shake(t, tls.VersionTLS13)
	_, _ = client.Write([]byte("last"))
	_ = client.CloseWrite()
	plain, err := s.Open(nil, w.take())
	if string(plain) != "last" || err != io.EOF {
		t.Errorf("%q, %v; want the last words and io.EOF", plain, err)
	}
}

func TestSession_RefusesWhatWasChanged(t *testing.T) {
	s, client, w := shake(t, tls.VersionTLS13)
	_, _ = client.Write([]byte("one"))
	first := w.take()
	_, _ = client.Write([]byte("two"))
	raw := w.take()
	raw[len(raw)-1] ^= 1
	plain, err := s.Open(nil, append(first, raw...))
	if string(plain) != "one" || err == nil || err == io.EOF {
		t.Errorf("%q, %v; want what was good, and an error", plain, err)
	}
	var alert tls.AlertError
	if _, err := client.Read(make([]byte, 1)); !errors.As(err, &alert) && err == nil {
		t.Errorf("the client was not told: %v", err)
	}
}

// What the record layer of crypto/tls allocates is known: one small reader a record.
func TestSession_AllocatesLittle(t *testing.T) {
	s, client, w := shake(t, tls.VersionTLS13)
	var raws [][]byte
	for range 300 {
		_, _ = client.Write([]byte(benchRequest))
		raws = append(raws, w.take())
	}
	plain := make([]byte, 0, 64<<10)
	answer := make([]byte, 200)
	s.socket.send = func([]byte) {}
	if n := testing.AllocsPerRun(200, func() {
		if _, err := s.Open(plain, raws[0]); err != nil {
			t.Fatal(err)
		}
		raws = raws[1:]
		_ = s.Seal(answer)
	}); n > 2 {
		t.Errorf("%v allocations for a request", n)
	}
}

const benchRequest = "GET /timestamp HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n"

// BenchmarkSession opens a request and seals an answer.
func BenchmarkSession(b *testing.B) {
	s, client, w := shake(b, tls.VersionTLS13)
	s.socket.send = func([]byte) {}
	plain, answer := make([]byte, 0, 64<<10), make([]byte, 180)
	b.ReportAllocs()
	var raws [][]byte
	for b.Loop() {
		if len(raws) == 0 {
			b.StopTimer()
			for range 1000 {
				_, _ = client.Write([]byte(benchRequest))
				raws = append(raws, w.take())
			}
			b.StartTimer()
		}
		if _, err := s.Open(plain, raws[0]); err != nil {
			b.Fatal(err)
		}
		raws = raws[1:]
		_ = s.Seal(answer)
	}
}

// However a stream is cut, the same records end in it.
func FuzzRecords(f *testing.F) {
	f.Add([]byte("\x17\x03\x03\x00\x02ab\x15\x03\x03\x00\x00\x17"), uint16(3), uint16(9))
	f.Fuzz(func(t *testing.T, b []byte, first, second uint16) {
		var whole, cut records
		want := whole.count(b)
		at := min(int(first), len(b))
		end := min(at+int(second), len(b))
		got := cut.count(b[:at]) + cut.count(b[at:end]) + cut.count(b[end:])
		if got != want || cut != whole {
			t.Errorf("%d records and %+v, want %d and %+v", got, cut, want, whole)
		}
		var steps records
		rest, sum := b, 0
		for len(rest) > 0 {
			n, ended := steps.next(rest)
			if n == 0 || n > len(rest) {
				t.Fatalf("next(%q) = %d", rest, n)
			}
			if rest = rest[n:]; ended {
				sum++
			}
		}
		if sum != want {
			t.Errorf("next finds %d records, want %d", sum, want)
		}
	})
}
