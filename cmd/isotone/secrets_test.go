package main

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/isotone/isotone/internal/auth/credential"
	"github.com/isotone/isotone/internal/check/await"
	"github.com/isotone/isotone/internal/check/rig"
)

// planted is in every secret of this test; what follows says where the secret was.
const planted = "planted-"

// vault notes what commands and nodes say, and finds secrets in it.
type vault struct {
	t       *testing.T
	secrets []string // beside those with planted
}

// secretWord finds a planted secret, also where it is escaped in part.
var secretWord = regexp.MustCompile(planted + `[a-z0-9]*`)

// look fails the test if a secret is in text, which came from there.
func (v *vault) look(from, text string) {
	v.t.Helper()
	found := secretWord.FindAllString(text, -1)
	decoded := base64Word.ReplaceAllStringFunc(text, func(word string) string { // as of Basic authentication
		b, _ := base64.StdEncoding.DecodeString(word)
		return string(b)
	})
	found = append(found, secretWord.FindAllString(decoded, -1)...)
	for _, secret := range v.secrets {
		if strings.Contains(text, secret) {
			found = append(found, "a line of a private key")
		}
	}
	if len(found) > 0 {
		v.t.Errorf("%s has %q:\n%.3000s", from, found, text)
	}
}

var base64Word = regexp.MustCompile(`[A-Za-z0-9+/]{16,}={0,2}`)

// keyFiles makes a pair, whose key is a secret.
func (v *vault) keyFiles(name string) (cert, key string) {
	v.t.Helper()
	dir := v.t.TempDir()
	cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem")
	_, err := credential.Open(credential.Config{CertFile: cert, KeyFile: key, CertSetting: "c", KeySetting: "k", SelfSigned: true, Hosts: []string{"127.0.0.1"}})
	if err != nil {
		v.t.Fatal(err)
	}
	text, err := os.ReadFile(key)
	if err != nil {
		v.t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	for line := range strings.SplitSeq(string(pem.EncodeToMemory(&pem.Block{Type: "X", Bytes: block.Bytes})), "\n") {
		if len(line) > 20 && !strings.HasPrefix(line, "-") {
			v.secrets = append(v.secrets, line)
		}
	}
	return cert, key
}

// file writes a file with secrets that is nothing that anybody wants.
func (v *vault) file(name, text string) string {
	v.t.Helper()
	path := filepath.Join(v.t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		v.t.Fatal(err)
	}
	return path
}

// run runs a command until it ends, or serves, and looks at its output.
func (v *vault) run(env []string, args ...string) string {
	v.t.Helper()
	var out syncBuffer
	cmd := reexec(v.t, env, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	for deadline := time.Now().Add(rig.Wait); ; {
		select {
		case <-ended:
			v.look("isotone "+config3(args), out.String())
			return out.String()
		case <-time.After(20 * time.Millisecond):
		}
		if strings.Contains(out.String(), `"msg":"serving"`) || time.Now().After(deadline) {
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
}

// config3 is the beginning of a command line, for messages.
func config3(args []string) string { return strings.Join(args[:min(3, len(args))], " ") }

// secretURL is a URL with a secret in each place that may have one.
func secretURL(scheme, host, where string) string {
	return fmt.Sprintf("%s://user:%s%spassword@%s/?token=%s%squery", scheme, planted, where, host, planted, where)
}

// badEnvironment has secrets in each setting that may have one, none of which can be used.
func (v *vault) badEnvironment() []string {
	junk := v.file("junk", "user:"+planted+"inafile\n{\"live\": \""+planted+"inafile\"\n-----BEGIN PRIVATE KEY-----\n"+planted+"inafile\n-----END PRIVATE KEY-----\n")
	env := []string{
		"LIVE=a=" + secretURL("http", "h:port", "live") + ",b=redis://:" + planted + "redis@h#k,c=" + planted,
		"TRACE_ENDPOINT=" + secretURL("http", "collector:4318", "trace"), "JOIN=" + secretURL("http", "node:8080", "join"),
		"ISOTONE_CONFIG=" + junk, "HTTP_PROXY=http://u:" + planted + "proxy@ h:1", "REDIS_PASSWORD=" + planted + "other",
	}
	for _, name := range []string{"ACL_FILE", "TLS_CERT", "TLS_KEY", "TLS_CLIENT_CA", "TLS_CLIENT_CRL", "PEER_TLS_CERT", "PEER_TLS_KEY", "PEER_TLS_CA", "PEER_TLS_CRL"} {
		env = append(env, name+"="+junk)
	}
	return env
}

// TestSecrets_NoCommandTellsAny has real commands fail with secrets in what they were given.
func TestSecrets_NoCommandTellsAny(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	v := &vault{t: t}
	env := v.badEnvironment()
	parser, err := kong.New(&cli{})
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(true) {
		var words []string
		for n := leaf; n.Type == kong.CommandNode; n = n.Parent {
			words = append([]string{n.Name}, words...)
		}
		t.Run(strings.Join(words, " "), func(t *testing.T) { // at once: some ask for a minute
			t.Parallel()
			v := &vault{t: t}
			run := func(env []string, arg string) string { return v.run(env, slices.Concat(words, []string{arg})...) }
			if out := run(env, "--help"); !strings.HasPrefix(out, "Usage: isotone "+strings.Join(words, " ")) {
				t.Errorf("isotone %q --help: %s", words, out)
			}
			run(env, "--no-such-flag="+secretURL("http", "h", "flag"))
			run(env, secretURL("http", "127.0.0.1:1", "argument"))
			for _, f := range leaf.Flags {
				switch f.Name {
				case "endpoint", "target", "backend", "node", "live", "trace-endpoint", "join":
					run(nil, "--"+f.Name+"="+secretURL("http", "127.0.0.1:1", "flag"))
				}
			}
		})
	}
	junk := env[3][strings.IndexByte(env[3], '=')+1:]
	for _, name := range []string{"ISOTONE_CONFIG", "TLS_CERT", "TLS_CLIENT_CA", "TLS_CLIENT_CRL", "ACL_FILE", "PEER_TLS_CERT", "PEER_TLS_CA", "PEER_TLS_CRL"} {
		one := append(freePorts(t), name+"="+junk)
		if name == "TLS_CERT" || name == "PEER_TLS_CERT" {
			one = append(one, strings.Replace(name, "CERT", "KEY", 1)+"="+junk)
		}
		v.run(one, "serve")
	}
	if out := v.run(freePorts(t), "serve", "--live="+env[0][5:]); !strings.Contains(out, "want a valid URL") {
		t.Errorf("LIVE is not refused: %s", out)
	}
}

// freePorts is the environment of a node at ports of its own.
func freePorts(t *testing.T) []string {
	addrs := freeAddrs(t, 2)
	return []string{
		"HTTP_HOST=127.0.0.1", fmt.Sprint("HTTP_PORT=", portOf(t, addrs[0])), "RAFT_ADDR=" + addrs[1], "THRIFT_PORT=0", "ADMIN_ADDR=127.0.0.1:0",
		"DATA_DIR=data", "DEBUG=1",
	}
}

// sources are servers for live documents, which fail in every way.
func sources(t *testing.T) (flag string) {
	t.Helper()
	var loads int
	good := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != planted+"goodpassword" || r.URL.RawQuery != "token="+planted+"goodquery" {
			http.Error(w, "no", http.StatusUnauthorized)
		} else if loads++; loads == 1 {
			_, _ = io.WriteString(w, `{"n":1}`)
		} else {
			http.Error(w, "later", http.StatusInternalServerError)
		}
	}))
	t.Cleanup(good.Close)
	away := httptest.NewServer(http.RedirectHandler(secretURL("http", "169.254.169.254", "redirect"), http.StatusFound))
	t.Cleanup(away.Close)
	redis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = redis.Close() })
	go func() {
		for {
			c, err := redis.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(c, "-ERR unknown command 'AUTH', with args beginning with: '%sredis'\r\n", planted)
			time.AfterFunc(time.Second, func() { _ = c.Close() })
		}
	}()
	host := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }
	closed := closedAddr(t)
	return strings.Join([]string{
		"good=" + secretURL("http", host(good), "good"), "denied=" + secretURL("http", host(good), "denied"), "away=" + secretURL("http", host(away), "away"),
		"gone=" + secretURL("https", closed, "gone"), "proxied=" + secretURL("http", "feed.invalid", "proxied"),
		"redis=redis://:" + planted + "redis@" + redis.Addr().String() + "/0#k", "lost=rediss://user:" + planted + "lost@" + closed + "#k",
	}, ",")
}

// TestSecrets_NoNodeTellsAny has a real node, whose settings are full of secrets, fail and answer.
func TestSecrets_NoNodeTellsAny(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a process")
	}
	v := &vault{t: t}
	cert, key := v.keyFiles("server")
	addrs := freeAddrs(t, 3)
	client, admin := addrs[0], addrs[1]
	var log syncBuffer
	cmd := reexec(t, []string{
		"HTTP_HOST=127.0.0.1", fmt.Sprint("HTTP_PORT=", portOf(t, client)), "ADMIN_ADDR=" + admin, "RAFT_ADDR=" + addrs[2], "THRIFT_PORT=0",
		"DEBUG=1", "REQUEST_STATS=1", "TLS_CERT=" + cert, "TLS_KEY=" + key, "TRACE_SAMPLE=1", "LIVE_INTERVAL_MS=100",
		"HTTP_PROXY=user:" + planted + "proxy%zz@host", "https_proxy=http://user:" + planted + "proxy@127.0.0.1:1", "SOME_PASSWORD=" + planted + "environment",
	}, "serve", "--live="+sources(t), "--trace-endpoint=http://"+closedAddr(t)+"/v1/traces?token="+planted+"trace")
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	newKept(t, client).ask()
	for _, document := range []string{"good", "denied", "away", "gone", "proxied", "redis", "lost"} {
		want := `"live document cannot be loaded","document":"` + document + `"`
		await.Done(t, await.Timeout, func() (bool, string) {
			return strings.Contains(log.String(), want), document + " does not fail: " + log.String()
		})
	}
	v.ask(client, admin)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the node: %v", err)
	}
	if !strings.Contains(log.String(), "traces") {
		t.Error("the collector that is missing is not in the log")
	}
	v.look("the log", log.String())
}

// ask looks at what a node answers, also to requests that have secrets themselves.
func (v *vault) ask(client, admin string) {
	for _, path := range []string{
		"/", "/state", "/members", "/metrics", "/up", "/ready", "/readyz?verbose", "/livez?verbose", "/upgrade", "/admin/members", "/admin/join?node=5",
		"/admin/nothing", "/live/good", "/live/denied", "/live/away", "/live/redis", "/live/nothing", "/timestamp?n=x", "/api/snowflake?n=x",
		"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1", "/debug/pprof/symbol", "/debug/pprof/nothing",
	} {
		for _, base := range []string{"http://" + client, "https://" + client, "http://" + admin} {
			v.look(base+path, v.get(base+path))
		}
	}
	conn, err := net.DialTimeout("tcp", client, rig.Wait)
	if err != nil {
		v.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(rig.Wait))
	_, _ = io.WriteString(conn, "*3\r\n$4\r\nAUTH\r\n$4\r\nuser\r\n$11\r\nplanted-aut\r\n*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$4\r\nuser\r\n$11\r\nplanted-aut\r\n"+
		"AUTH planted-inline\r\nQUIT\r\n")
	answers, _ := io.ReadAll(conn)
	v.look("the answers to AUTH", string(answers))
}

// get returns an answer with its header. The request has secrets of the client's.
func (v *vault) get(url string) string {
	v.t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+planted+"bearer")
	r.Header.Set("Cookie", "session="+planted+"cookie")
	c := http.Client{Timeout: rig.Wait, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := c.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return fmt.Sprint(answer.Header) + string(body)
}
