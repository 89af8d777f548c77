package probe

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/isotone/isotone/internal/inspect/doctor"
	"github.com/isotone/isotone/internal/inspect/survey"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDisk_MeasuresAndLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	d := measureDisk(t.Context(), dir, "isotone.db")
	if d.Error != "" || d.WriteError != "" || d.Missing || d.HasData || d.Dir != dir || d.Writes == 0 || d.Writes > writesMax || d.P50 <= 0 || d.P50 > d.P99 {
		t.Errorf("%+v", d)
	}
	if err := os.WriteFile(filepath.Join(dir, "isotone.db"), []byte("of a node"), 0); err != nil {
		t.Fatal(err)
	}
	if d = measureDisk(t.Context(), dir, "isotone.db"); !d.HasData || d.WriteError != "" {
		t.Errorf("%+v", d)
	}
	if d = measureDisk(t.Context(), filepath.Join(dir, "not", "yet"), "isotone.db"); !d.Missing || d.Dir != dir || d.WriteError != "" {
		t.Errorf("%+v", d)
	}
	if d = measureDisk(t.Context(), filepath.Join(dir, "isotone.db"), "isotone.db"); !strings.Contains(d.Error, "not a directory") {
		t.Errorf("%+v", d)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if d = measureDisk(ended, dir, "isotone.db"); d.Writes != 0 || d.WriteError != "" {
		t.Errorf("after ctx has ended: %+v", d)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("files are left: %v, %v", files, err)
	}
}

// TestDisk_ThatHangsIsNotWaitedFor once the command has to end.
func TestDisk_ThatHangsIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, ok := receive(ctx, nil); ok || time.Since(began) != time.Second+grace {
			t.Errorf("%t after %v", ok, time.Since(began))
		}
	})
}

func TestListen_TellsWhoUsesAPort(t *testing.T) {
	answers := map[string]string{}
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answers["state"] == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"error":{"code":"no_leader","message":"not a member yet"}}`))
			return
		}
		_, _ = w.Write([]byte(answers["state"]))
	}))
	defer node.Close()
	addr := node.Listener.Addr().String()
	try := func(setting, addr string) doctor.Listener {
		l := doctor.Listener{Setting: setting, Network: "tcp", Addr: addr}
		tryListen(t.Context(), node.Client(), addr, &l)
		return l
	}
	if l := try("HTTP_PORT", addr); !l.InUse || l.Free || l.Owner != 0 || l.Waiting != "not a member yet" {
		t.Errorf("%+v", l)
	}
	answers["state"] = `{"node":{"id":4}}`
	if l := try("HTTP_PORT", addr); !l.InUse || l.Owner != 4 || l.Waiting != "" {
		t.Errorf("%+v", l)
	}
	if l := try("RAFT_ADDR", addr); !l.InUse || l.Owner != 0 {
		t.Errorf("%+v", l)
	}
	if l := try("RAFT_ADDR", "192.0.2.1:1"); l.InUse || l.Free || l.Error == "" {
		t.Errorf("an address of another machine: %+v", l)
	}
	udp := doctor.Listener{Setting: "HTTP_PORT", Network: "udp", Addr: "127.0.0.1:0"}
	if tryListen(t.Context(), nil, "", &udp); !udp.Free {
		t.Errorf("%+v", udp)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = free.Addr().String()
	_ = free.Close()
	if l := try("HTTP_PORT", addr); !l.Free || l.InUse {
		t.Errorf("%+v", l)
	}
}

// writePair writes a certificate for a host that ends at a time, and its key.
func writePair(t *testing.T, host string, ends time.Time) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotBefore: ends.AddDate(-1, 0, 0), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

func TestCertificate_IsReadAsANodeReadsIt(t *testing.T) {
	ends := time.Now().AddDate(0, 1, 0).Truncate(time.Second)
	cert, key := writePair(t, "oracle.example", ends)
	_, other := writePair(t, "oracle.example", ends)
	read := func(set bool, cert, key, host string) doctor.Certificate {
		return readPair(doctor.Certificate{Set: set, File: cert}, key, host)
	}
	if c := read(true, cert, key, "oracle.example"); c.Error != "" || !c.Exists || !c.NotAfter.Equal(ends) || c.HostError != "" || c.KeyReadable {
		t.Errorf("%+v", c)
	}
	if c := read(true, cert, key, "other.example"); c.HostError == "" {
		t.Errorf("%+v", c)
	}
	if c := read(true, cert, other, "oracle.example"); !strings.Contains(c.Error, "private key") {
		t.Errorf("%+v", c)
	}
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	if c := read(true, cert, key, ""); !c.KeyReadable {
		t.Errorf("%+v", c)
	}
	if c := read(false, cert+".none", key+".none", "x"); c.Error != "" || c.Exists {
		t.Errorf("%+v", c)
	}
	if c := read(true, cert+".none", key+".none", "x"); c.Error == "" {
		t.Errorf("%+v", c)
	}
	if c := read(false, cert, key+".none", "x"); c.Error == "" {
		t.Errorf("half a pair: %+v", c)
	}
	if c := readCA(cert); c.Error != "" || !c.NotAfter.Equal(ends) {
		t.Errorf("%+v", c)
	}
	if c := readCA(key); !strings.Contains(c.Error, "no certificate") {
		t.Errorf("%+v", c)
	}
	if c := readCA(cert + ".none"); c.Error == "" {
		t.Errorf("%+v", c)
	}
}

func TestNames_AreThoseOfTheSettings(t *testing.T) {
	got := names(&doctor.Settings{
		AdvertiseAddr: "a.example:1", RaftAddr: "0.0.0.0:1", Peers: map[uint64]string{1: "10.0.0.1:1", 2: "b.example:1", 3: "a.example:2"}, Join: []string{"localhost:1", "c.example:1"},
	})
	if len(got) != 3 || got[0].Host != "a.example" || got[1].Host != "b.example" || got[1].Setting != "PEERS" || got[2].Setting != "JOIN" {
		t.Errorf("%+v", got)
	}
	n := doctor.Name{Host: "no.such.host.invalid"}
	if resolve(t.Context(), &n); n.Error == "" || len(n.Addrs) != 0 {
		t.Errorf("%+v", n)
	}
}

// TestRun_EndsSoonWhateverHangs asks a server that accepts and says nothing.
func TestRun_EndsSoonWhateverHangs(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	began := time.Now()
	m, err := Run(t.Context(), Config{Endpoints: []string{silent.Addr().String()}, Client: client})
	if err != nil || m.Cluster != nil || !strings.Contains(m.Unanswered, "no answer within") {
		t.Errorf("%+v, %v", m, err)
	}
	if took := time.Since(began); took > 10*Timeout {
		t.Errorf("it took %v", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began = time.Now()
	if _, err := Run(ctx, Config{Endpoints: []string{silent.Addr().String()}, Client: client}); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took >= Timeout {
		t.Errorf("after ctx has ended it took %v", took)
	}
	if _, err := Run(t.Context(), Config{Endpoints: []string{"http://a/path"}, Client: client}); err == nil {
		t.Error("an address that is none")
	}
}

// TestRun_AsksAgainWhileAConnectionIsMissing: the documents of nodes may be older than the connection.
func TestRun_AsksAgainWhileAConnectionIsMissing(t *testing.T) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for name, connectedFrom := range map[string]int64{"made meanwhile": 3, "never made": math.MaxInt64} {
		var asked atomic.Int64
		addrs := make([]string, 2)
		servers := make([]*httptest.Server, len(addrs))
		for i := range addrs {
			servers[i] = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/state" {
					http.NotFound(w, r)
					return
				}
				connected := i > 0 || asked.Add(1) >= connectedFrom
				state := survey.State{Node: survey.Node{ID: uint64(i + 1)}}
				for k, addr := range addrs {
					state.Members = append(state.Members, survey.Member{NodeID: uint64(k + 1), Addr: addr, Self: k == i, Connected: k == i || connected})
				}
				_ = json.NewEncoder(w).Encode(state)
			}))
			addrs[i] = servers[i].Listener.Addr().String()
		}
		for _, s := range servers {
			s.Start()
			defer s.Close()
		}
		m, err := Run(t.Context(), Config{Endpoints: addrs[:1], Client: client})
		if err != nil || m.Cluster == nil {
			t.Fatalf("%s: %+v, %v", name, m, err)
		}
		apart, checked := m.Cluster.Apart()
		if checked != 1 || (len(apart) == 0) != (connectedFrom == 3) || asked.Load() < 2 {
			t.Errorf("%s: %v of %d pairs after %d answers", name, apart, checked, asked.Load())
		}
	}
}

// TestAnswerTimeout_IsAFifth of the time that is left, and Timeout at least.
func TestAnswerTimeout_IsAFifth(t *testing.T) {
	if got := answerTimeout(t.Context()); got != Timeout {
		t.Errorf("without a deadline: %v", got)
	}
	for left, want := range map[time.Duration]time.Duration{time.Second: Timeout, 10 * time.Second: Timeout, time.Minute: 12 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			if got := answerTimeout(ctx); got != want {
				t.Errorf("%v are left: %v, want %v", left, got, want)
			}
		})
	}
}
