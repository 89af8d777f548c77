package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/pingcap/kvproto/pkg/pdpb"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testWait bounds every wait of these tests.
const testWait = time.Minute

const testCluster isotone.ClusterID = 0x5e1f0c3a9b2d4e71

// fake is a cluster that always answers.
type fake struct {
	mu      sync.Mutex
	next    isotone.Timestamp64
	options client.Options
	closed  bool
}

func (f *fake) dial(o client.Options) (cluster, error) {
	f.options = o
	f.next = isotone.NewTimestamp64(uint64(time.Now().UnixMilli()), 0)
	return f, nil
}

func (f *fake) Timestamps64(_ context.Context, count uint64) (isotone.Range64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := isotone.Range64{First: f.next, Count: count}
	f.next += isotone.Timestamp64(count)
	return r, nil
}

func (f *fake) Timestamp64(ctx context.Context) (isotone.Timestamp64, error) {
	r, err := f.Timestamps64(ctx, 1)
	return r.First, err
}

func (f *fake) Cluster() isotone.ClusterID { return testCluster }

func (f *fake) Close() error {
	f.closed = true
	return nil
}

func parse(t *testing.T, args ...string) *command {
	t.Helper()
	var c command
	p, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &c
}

// ports are where a gateway listens.
type ports struct{ pd, web, admin string }

// serveFake runs a gateway until stop, and returns where it listens.
func serveFake(t *testing.T, f *fake, args ...string) (pd, web string, stop func() string) {
	p, stop := serveFakeAt(t, f, args...)
	return p.pd, p.web, stop
}

func serveFakeAt(t *testing.T, f *fake, args ...string) (p ports, stop func() string) {
	t.Helper()
	c := parse(t, append(args, "--endpoint", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--listen-http", "127.0.0.1:0", "--admin", "127.0.0.1:0")...)
	ctx, cancel := context.WithCancel(context.Background())
	read, write := io.Pipe()
	var lines bytes.Buffer
	done := make(chan error, 1)
	go func() {
		done <- c.serve(ctx, f.dial, slog.New(slog.NewJSONHandler(write, nil)))
		write.Close()
	}()
	decoder := json.NewDecoder(io.TeeReader(read, &lines))
	for p.pd == "" {
		var line struct{ Msg, Listen, HTTP, Admin string }
		if err := decoder.Decode(&line); err != nil {
			t.Fatalf("%v: %v\n%s", err, <-done, &lines)
		}
		p = ports{line.Listen, line.HTTP, line.Admin}
	}
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		_, _ = io.Copy(&lines, read)
	}()
	return p, func() string {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("serve: %v", err)
			}
		case <-time.After(testWait):
			t.Fatal("the gateway does not stop")
		}
		<-logged
		return lines.String()
	}
}

func TestServe_AnswersUntilItIsStopped(t *testing.T) {
	f := &fake{}
	pd, web, stop := serveFake(t, f)
	conn, err := grpc.NewClient(pd, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testWait)
	defer cancel()
	members, err := pdpb.NewPDClient(conn).GetMembers(ctx, &pdpb.GetMembersRequest{})
	if err != nil || members.GetLeader().GetClientUrls()[0] != "http://"+pd {
		t.Fatalf("GetMembers: %v, %v", members, err)
	}
	stream, err := pdpb.NewPDClient(conn).Tso(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pdpb.TsoRequest{Header: &pdpb.RequestHeader{ClusterId: uint64(testCluster)}, Count: 5}); err != nil {
		t.Fatal(err)
	}
	if got, err := stream.Recv(); err != nil || got.GetCount() != 5 {
		t.Fatalf("Tso: %v, %v", got, err)
	}
	for path, want := range map[string]string{"/assign?what=timestamps&num=2": `{"startId":"`, "/orders/timestamp/fresh-timestamps?number=2": `{"lowerBound":`} {
		method := http.MethodGet
		if strings.HasPrefix(path, "/orders") {
			method = http.MethodPost
		}
		if got := fetch(t, ctx, method, "http://"+web+path); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s…", path, got, want)
		}
	}
	log := stop() // with the stream open
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("the stream of a stopped gateway: %v, want its end", err)
	}
	if !f.closed || !f.options.Lazy || !strings.Contains(log, "stopped") || strings.Contains(log, "cut off") {
		t.Errorf("closed %v, lazy %v, log %s", f.closed, f.options.Lazy, log)
	}
}

// TestAdmin_CountsWhatClientsGet and says whether the cluster answers.
func TestAdmin_CountsWhatClientsGet(t *testing.T) {
	p, stop := serveFakeAt(t, &fake{})
	defer stop()
	conn, err := grpc.NewClient(p.pd, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testWait)
	defer cancel()
	stream, err := pdpb.NewPDClient(conn).Tso(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, count := range []uint32{5, 2, 0} { // the last one is refused
		if err := stream.Send(&pdpb.TsoRequest{Header: &pdpb.RequestHeader{ClusterId: uint64(testCluster)}, Count: count}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); (err == nil) != (count > 0) {
			t.Fatalf("count %d: %v", count, err)
		}
	}
	if got := fetch(t, ctx, http.MethodGet, "http://"+p.admin+"/readyz") + fetch(t, ctx, http.MethodGet, "http://"+p.admin+"/livez"); got != "ok\nok\n" {
		t.Errorf("ready and live: %q", got)
	}
	metrics := fetch(t, ctx, http.MethodGet, "http://"+p.admin+"/metrics")
	for _, want := range []string{"isotone_pd_requests_total 2", "isotone_pd_timestamps_total 7", "isotone_pd_streams 0",
		`isotone_pd_streams_ended_total{code="InvalidArgument"} 1`, "isotone_pd_cluster_request_seconds_count 3",
		"isotone_pd_cluster_failures_total 0", "isotone_pd_cluster_retries_total 0", "go_goroutines "} {
		if !strings.Contains(metrics, "\n"+want) {
			t.Errorf("%s is not among the metrics:\n%s", want, metrics)
		}
	}
}

func fetch(t *testing.T, ctx context.Context, method, url string) string {
	t.Helper()
	body, err := fetchWith(ctx, nil, method, url)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func fetchWith(ctx context.Context, secure *tls.Config, method, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return "", err
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: secure}
	a, err := transport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	return string(body), err
}

func TestRun_SaysWhatIsWrongWithTheCommandLine(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("x\n"), 0o644); err != nil { // others may read it
		t.Fatal(err)
	}
	nodes := "--endpoint=127.0.0.1:1"
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "missing flags: --endpoint"},
		{[]string{"--endpoint=nowhere"}, "--endpoint: "},
		{[]string{"--endpoint=ftp://a:1"}, `--endpoint "ftp://a:1": want HOST:PORT`},
		{[]string{"--endpoint=http://a:1", "--ca=x"}, "want all addresses with https, or none"},
		{[]string{nodes, "--ca=/does/not/exist"}, "--ca: open /does/not/exist"},
		{[]string{nodes, "--cert=x"}, "--cert and --key go together"},
		{[]string{nodes, "--tls-cert=x"}, "--tls-cert and --tls-key go together"},
		{[]string{nodes, "--tls-client-ca=x"}, "--tls-client-ca needs --tls-cert"},
		{[]string{nodes, "--tls-cert=/does/not/exist", "--tls-key=x"}, "--tls-cert: "},
		{[]string{nodes, "--mode=fast"}, `--mode "fast": want quorum or lease`},
		{[]string{nodes, "--cluster=7"}, `--cluster "7": want 16 hexadecimal digits`},
		{[]string{nodes, "--timeout=1ms"}, "--timeout 1ms: want 100ms to 1m0s"},
		{[]string{nodes, "--drain-timeout=-1s"}, "--drain-timeout -1s"},
		{[]string{nodes, "--max-connections=0"}, "--max-connections 0"},
		{[]string{nodes, "--member=b"}, `--member "b": want HOST:PORT`},
		{[]string{nodes, "--listen=0.0.0.0:0"}, "want --advertise HOST:PORT"},
		{[]string{nodes, "--listen=127.0.0.1:0", "--advertise=here"}, `--advertise "here": want HOST:PORT`},
		{[]string{nodes, "--user=pd", "--anonymous"}, "want its secret in a file (--password-file)"},
		{[]string{nodes, "--password-file=" + secret}, "want --user NAME"},
		{[]string{nodes, "--user=pd", "--password-file=" + secret, "--anonymous"}, "--password-file: "},
		{[]string{nodes, "--user=pd", "--password-file=" + secret}, "say who may: --tls-client-ca FILE"},
		{[]string{nodes, "--cert=x", "--key=x", "--tls-cert=x", "--tls-key=x"}, "say who may: --tls-client-ca FILE"},
		{[]string{nodes, "--tls-client-crl=x"}, "--tls-client-crl needs --tls-client-ca"},
		{[]string{"--endpoint=10.0.0.1:1", "--user=pd", "--password-file=" + secret, "--anonymous"}, "the secret would cross the network in plaintext"},
		{[]string{nodes, "--listen=nowhere"}, "--listen: "},
	} {
		var out, errs bytes.Buffer
		code := run(c.args, &out, &errs, (&fake{}).dial)
		if code == 0 || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%v: code %d, %s; want %s", c.args, code, &errs, c.want)
		}
	}
}

func TestRun_HelpNamesTheFlags(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run([]string{"--help"}, &out, &errs, (&fake{}).dial); code != 0 {
		t.Fatalf("code %d: %s", code, &errs)
	}
	for _, want := range []string{"--listen", "--endpoint", "--advertise", "--member", "--tls-client-ca", "--password-file", "--mode", "Tso"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is not in the help:\n%s", want, &out)
		}
	}
}

func TestMembers_AreURLsWithThisGatewayFirst(t *testing.T) {
	c := parse(t, "--endpoint", "127.0.0.1:1", "--advertise", "b:1", "--member", "a:1,b:1,c:1", "--tls-cert", "x", "--tls-key", "y")
	got, err := c.members(nil)
	if err != nil || strings.Join(got, " ") != "https://b:1 https://a:1 https://c:1" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestOptions_ReachTheNodesAsTheFlagsSay(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("open sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := parse(t, "--endpoint", "https://a:1,b:2", "--user", "pd", "--password-file", secret, "--mode", "lease",
		"--cluster", "5e1f0c3a9b2d4e71", "--server-name", "oracle")
	o, err := c.options()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(o.Addrs, " ") != "a:1 b:2" || o.Mode != isotone.ReadLease || o.Cluster != testCluster || o.TLS == nil || o.TLS.ServerName != "oracle" {
		t.Errorf("got %+v", o)
	}
	known, err := o.Credentials(t.Context())
	if err != nil || known.Name != "pd" || known.Secret != "open sesame" {
		t.Errorf("credentials %v, %v", known, err)
	}
}
