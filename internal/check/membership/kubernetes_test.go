//go:build linux

package membership_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/isotone/isotone/internal/check/chaos"
	"github.com/isotone/isotone/internal/check/trial"
)

// The manifests that the Helm chart renders; deploy/helm/check.sh keeps them true.
const manifestDir = "../../../deploy/helm/testdata/golden/"

const (
	podDomain   = "demo-isotone-peers.default.svc.cluster.local"
	clientHost  = "demo-isotone.default.svc.cluster.local"
	podHTTP     = "8080"
	podMetrics  = "9090"
	podsMax     = 5
	podsTimeout = 2 * time.Minute
)

// TestKubernetes_ScalesByTheCommandsOfTheChart runs nodes with the environment that the chart gives to
// pods, with host names and DNS as they have them, and scales them by the commands of its hooks. It needs
// the right to make namespaces, so it skips itself elsewhere.
func TestKubernetes_ScalesByTheCommandsOfTheChart(t *testing.T) {
	t.Parallel()
	// Inside it mounts a file over one of the machine's, so the variable alone, which anybody may set, is not enough.
	ours, _ := os.Readlink("/proc/self/ns/mnt")
	parents, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", os.Getppid()))
	if os.Getenv(trial.BinaryVariable) != "" && parents != "" && ours != parents {
		scalePods(t)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*podsTimeout) // each wait inside is bounded as well
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), trial.BinaryVariable+"="+trial.Binary)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil && len(out) == 0:
		t.Skipf("namespaces cannot be made here: %v", err)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("%s", out)
	}
}

// pods are the processes in place of the pods of a StatefulSet.
type pods struct {
	t   *testing.T
	dir string // has tls and a directory for each pod

	mu      sync.Mutex
	running map[int]*chaos.Process
}

func podName(ordinal int) string  { return fmt.Sprintf("demo-isotone-%d", ordinal) }
func podIP(ordinal int) net.IP    { return net.IPv4(127, 0, 77, byte(10+ordinal)) }
func fqdn(ordinal int) string     { return podName(ordinal) + "." + podDomain }
func (p *pods) certs() string     { return filepath.Join(p.dir, "certs") }
func (p *pods) data(i int) string { return filepath.Join(p.dir, podName(i)) }

// readManifest returns what the chart renders for a set of values, with the directory of this test in
// place of /tls and of the volume of the data.
func (p *pods) readManifest(values string) string {
	p.t.Helper()
	text, err := os.ReadFile(manifestDir + values + ".yaml")
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "/tls/", p.dir+"/tls/")
}

var (
	envLine = regexp.MustCompile(`(?m)^ {12}- \{name: ([A-Z_]+), value: ['"]?([^'"}]*(?:\{ordinal\}[^'"}]*)?)['"]?\}$`)
	argLine = regexp.MustCompile(`(?m)^ +- (.+)$`)
)

// env returns the environment of a pod.
func (p *pods) env(manifest string, ordinal int) (env []string) {
	_, spec, _ := strings.Cut(manifest, "kind: StatefulSet\n")
	spec, _, _ = strings.Cut(spec, "\n---\n")
	env = []string{"POD_NAME=" + podName(ordinal), "GODEBUG=netdns=go", "HTTP_HOST=" + podIP(ordinal).String(), "THRIFT_PORT=0"}
	for _, m := range envLine.FindAllStringSubmatch(spec, -1) {
		value := strings.ReplaceAll(m[2], "$(POD_NAME)", podName(ordinal))
		value = strings.ReplaceAll(value, "0.0.0.0", podIP(ordinal).String()) // all are on one machine
		switch m[1] {
		case "DATA_DIR":
			value = p.data(ordinal)
		case "SHUTDOWN_DELAY_MS":
			value = "0"
		}
		env = append(env, m[1]+"="+value)
	}
	return env
}

// reconcile runs the command of the hook before an upgrade.
func (p *pods) reconcile(values string) {
	p.t.Helper()
	p.command(p.hook(values, "reconcile", "member", "reconcile", "--replicas=")...)
}

// hook returns the arguments of the command of a hook, as they are in the manifest. They begin as in want.
func (p *pods) hook(values, container string, want ...string) (args []string) {
	p.t.Helper()
	_, hook, _ := strings.Cut(p.readManifest(values), "- name: "+container+"\n")
	_, hook, _ = strings.Cut(hook, "args:\n")
	hook, _, _ = strings.Cut(hook, "image:")
	for _, m := range argLine.FindAllStringSubmatch(hook, -1) {
		args = append(args, m[1])
	}
	if !strings.HasPrefix(strings.Join(args, " "), strings.Join(want, " ")) {
		p.t.Fatalf("the hook %s in %s: %q", container, values, args)
	}
	return args
}

// command runs one command in a pod of its own, and returns its output.
func (p *pods) command(args ...string) string {
	p.t.Helper()
	out, err := p.try(args...)
	if err != nil {
		p.t.Fatalf("isotone %s: %v\n%s\n%s", strings.Join(args, " "), err, out, p.logs())
	}
	return out
}

// try is command for one that may fail.
func (p *pods) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), podsTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, trial.Binary, args...)
	cmd.Dir, cmd.Env = p.dir, []string{"GODEBUG=netdns=go"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// operator asks a host to run a command of an operator, by the certificate of the hook.
func (p *pods) operator(host string, args ...string) string {
	p.t.Helper()
	tls := filepath.Join(p.dir, "tls", "operator")
	return p.command(append(args, "--endpoint=https://"+host+":"+podHTTP, "--ca="+tls+"/ca.crt", "--cert="+tls+"/tls.crt", "--key="+tls+"/tls.key", "--yes")...)
}

// start starts pods with the template of a manifest.
func (p *pods) start(values string, ordinals ...int) {
	p.t.Helper()
	manifest := p.readManifest(values)
	for _, i := range ordinals {
		script := fmt.Sprintf("echo %s > /proc/sys/kernel/hostname && exec %q serve", podName(i), trial.Binary)
		pod, err := chaos.Run(podName(i), p.data(i)+".log", append(p.env(manifest, i), "PATH="+os.Getenv("PATH")), []string{"unshare", "--uts", "sh", "-c", script})
		if err != nil {
			p.t.Fatal(err)
		}
		p.mu.Lock()
		p.running[i] = pod
		p.mu.Unlock()
	}
}

// forget ends the pod of a process that has ended or is to end.
func (p *pods) forget(ordinal int) *chaos.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	pod := p.running[ordinal]
	delete(p.running, ordinal)
	return pod
}

func (p *pods) stop(ordinals ...int) {
	p.t.Helper()
	for _, i := range ordinals {
		if pod := p.forget(i); pod != nil {
			if err := pod.Term(); err != nil {
				p.t.Fatal(err)
			}
			if code, err := pod.WaitExit(time.Minute); err != nil || code != 0 {
				p.t.Fatalf("%s: exit code %d, %v\n%s", podName(i), code, err, pod.Log())
			}
		}
	}
}

func (p *pods) logs() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	for i, pod := range p.running {
		log := pod.Log()
		fmt.Fprintf(&b, "-- %s:\n%s\n", podName(i), log[max(0, len(log)-3000):])
	}
	return b.String()
}

// probe asks a pod as the kubelet does.
func probe(ordinal int, path string) (status int) {
	client := http.Client{Timeout: 500 * time.Millisecond, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + net.JoinHostPort(podIP(ordinal).String(), podMetrics) + path)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// until waits for a condition.
func (p *pods) until(what string, done func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(podsTimeout / 2); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: it does not happen\n%s", what, p.logs())
		}
	}
}

func (p *pods) ready(ordinals ...int) {
	p.t.Helper()
	for _, i := range ordinals {
		p.until(podName(i)+" is ready", func() bool { return probe(i, "/readyz") == 200 })
	}
}

var voterLine = regexp.MustCompile(`(?m)^(\d+) +(?:voter|leader) `)

// voters waits until these nodes are the voters, and there is no other member.
func (p *pods) voters(want ...string) {
	p.t.Helper()
	p.until("voters: "+strings.Join(want, " "), func() bool {
		out := p.operator(clientHost, "member", "list")
		var got []string
		for _, m := range voterLine.FindAllStringSubmatch(out, -1) {
			got = append(got, m[1])
		}
		return slices.Equal(got, want) && !strings.Contains(out, " learner ")
	})
}

// resolve answers as the DNS of a cluster does: SRV records of the peers and addresses of all pods, and
// for the service of the clients those that are ready.
func (p *pods) resolve(q dnsmessage.Question) (answers []dnsmessage.Resource) {
	p.mu.Lock()
	running := make([]int, 0, podsMax)
	for i := range p.running {
		running = append(running, i)
	}
	p.mu.Unlock()
	slices.Sort(running)
	header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}
	name := strings.TrimSuffix(q.Name.String(), ".")
	for _, i := range running {
		ip := dnsmessage.AResource{A: [4]byte(podIP(i).To4())}
		switch {
		case q.Type == dnsmessage.TypeSRV && name == "_peer._tcp."+podDomain:
			answers = append(answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.SRVResource{Port: 60001, Target: dnsmessage.MustNewName(fqdn(i) + ".")}})
		case q.Type == dnsmessage.TypeA && (name == fqdn(i) || name == clientHost && probe(i, "/readyz") == 200):
			answers = append(answers, dnsmessage.Resource{Header: header, Body: &ip})
		}
	}
	return answers
}

// serveDNS answers until the test ends.
func (p *pods) serveDNS(conn net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		m.Response, m.Authoritative, m.RecursionAvailable, m.Additionals = true, true, true, nil
		if m.Answers = p.resolve(m.Questions[0]); m.Answers == nil && m.Questions[0].Type != dnsmessage.TypeAAAA {
			m.RCode = dnsmessage.RCodeNameError
		}
		if answer, err := m.Pack(); err == nil {
			_, _ = conn.WriteTo(answer, from)
		}
	}
}

// enclose makes a machine of its own of the namespaces that this process was started in.
func (p *pods) enclose() {
	p.t.Helper()
	skip := func(what string, err error) {
		if err != nil {
			p.t.Skipf("%s: %v", what, err)
		}
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	skip("socket", err)
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	skip("lo", err)
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	skip("to bring lo up", unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo))
	conf := filepath.Join(p.dir, "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver 127.0.77.1\n"), 0o644); err != nil {
		p.t.Fatal(err)
	}
	skip("private mounts", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	skip("to mount resolv.conf", unix.Mount(conf, "/etc/resolv.conf", "", unix.MS_BIND, ""))
	if _, err := exec.LookPath("unshare"); err != nil {
		p.t.Skip(err)
	}
	conn, err := net.ListenPacket("udp", "127.0.77.1:53")
	skip("DNS", err)
	p.t.Cleanup(func() { _ = conn.Close() })
	go p.serveDNS(conn)
}

// makeSecrets makes the files that cert-manager would.
func (p *pods) makeSecrets() {
	p.t.Helper()
	for _, dir := range []string{"peer", "client", "operator"} {
		if err := os.MkdirAll(filepath.Join(p.dir, "tls", dir), 0o700); err != nil {
			p.t.Fatal(err)
		}
	}
	link := func(from, to string) {
		if err := os.Symlink(filepath.Join(p.certs(), from), filepath.Join(p.dir, "tls", to)); err != nil {
			p.t.Fatal(err)
		}
	}
	names := []string{"cert", "node", "100", clientHost}
	p.command("cert", "ca", "--dir", p.certs())
	for i := range podsMax {
		p.command("cert", "node", fmt.Sprint(i+1), fqdn(i), "--dir", p.certs())
		names = append(names, fqdn(i))
		if err := os.MkdirAll(filepath.Join(p.dir, "tls", "peer", podName(i)), 0o700); err != nil {
			p.t.Fatal(err)
		}
		link(fmt.Sprintf("node%d.pem", i+1), "peer/"+podName(i)+"/tls.crt")
		link(fmt.Sprintf("node%d-key.pem", i+1), "peer/"+podName(i)+"/tls.key")
	}
	p.command(append(names, "--dir", p.certs())...)
	p.command("cert", "client", "operator", "--dir", p.certs())
	for _, dir := range []string{"peer", "client", "operator"} {
		link("ca.pem", dir+"/ca.crt")
	}
	link("node100.pem", "client/tls.crt")
	link("node100-key.pem", "client/tls.key")
	link("client-operator.pem", "operator/tls.crt")
	link("client-operator-key.pem", "operator/tls.key")
}

// scalePods is the test, inside.
func scalePods(t *testing.T) {
	p := &pods{t: t, dir: t.TempDir(), running: map[int]*chaos.Process{}}
	p.enclose()
	p.makeSecrets()
	t.Cleanup(func() {
		for i := range podsMax {
			if pod := p.forget(i); pod != nil {
				_ = pod.Kill()
			}
		}
	})

	// Install. One of three does not form a cluster, and is alive.
	p.start("default", 0)
	p.until("the first pod is alive and not ready", func() bool { return probe(0, "/livez") == 200 && probe(0, "/readyz") == 503 })
	p.start("default", 1, 2)
	p.ready(0, 1, 2)
	p.voters("1", "2", "3")
	status := p.hook("default", "status", "status", "https://")
	p.until("helm test succeeds", func() bool { // what it shows of a node may be a second old
		_, err := p.try(status...)
		return err == nil
	})

	// To five: the hook, then the StatefulSet.
	p.reconcile("five")
	p.start("five", 3, 4)
	p.ready(3, 4)
	p.voters("1", "2", "3", "4", "5")

	// And back: the nodes end by themselves, as they are members no more.
	p.reconcile("default")
	p.voters("1", "2", "3")
	for _, i := range []int{3, 4} {
		pod := p.forget(i)
		pod.ExpectExit()
		if code, err := pod.WaitExit(time.Minute); err != nil || code != 1 || !strings.Contains(pod.Log(), "removed: node") {
			t.Fatalf("%s: exit code %d, %v\n%s", podName(i), code, err, pod.Log())
		}
	}

	// To five again, with IDs that are new and empty volumes. First the IDs: the StatefulSet restarts the pods.
	for _, i := range []int{3, 4} {
		if err := os.RemoveAll(p.data(i)); err != nil {
			t.Fatal(err)
		}
	}
	p.reconcile("renamed")
	p.voters("1", "2", "3")
	for _, i := range []int{2, 1, 0} {
		p.stop(i)
		p.start("renamed", i)
		p.ready(i)
	}
	// Then the pods. The StatefulSet would restart others only after the new ones are ready.
	p.reconcile("again")
	p.start("again", 4, 3)
	p.ready(4, 3)
	if before, after := p.env(p.readManifest("renamed"), 0), p.env(p.readManifest("again"), 0); !slices.Equal(before, after) {
		t.Errorf("the second upgrade restarts the pods as well:\n%q\n%q", before, after)
	}
	p.voters("1", "2", "3", "104", "105")

	// The volume of an initial member is lost. With the template of the install as well, it forms nothing.
	p.stop(0)
	if err := os.RemoveAll(p.data(0)); err != nil {
		t.Fatal(err)
	}
	p.start("default", 0)
	p.until("pod 0 waits to be replaced", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return strings.Contains(p.running[0].Log(), "isotone member replace 1")
	})
	p.operator(clientHost, "member", "replace", "1", fqdn(0)+":60001")
	p.ready(0)
	p.voters("1", "2", "3", "104", "105")
	p.stop(4, 3, 2, 1, 0)
	p.restoreFrom(1)
}

// restoreFrom loses all volumes but one, as docs/kubernetes.md describes. The pods wait on empty volumes, which are
// restored by commands in them, and form the cluster with the template of the install.
func (p *pods) restoreFrom(left int) {
	p.t.Helper()
	file := filepath.Join(p.dir, "cluster.backup")
	p.command("backup", "--data-dir", p.data(left), file)
	for i := range podsMax {
		if err := os.RemoveAll(p.data(i)); err != nil {
			p.t.Fatal(err)
		}
	}
	p.start("renamed", 0, 1, 2) // with bootstrap=false
	for i := range 3 {
		p.until(podName(i)+" waits for a cluster", func() bool { return probe(i, "/livez") == 200 && probe(i, "/readyz") == 503 })
		p.restore("renamed", i, file)
	}
	for i := range 3 {
		if err := p.forget(i).Kill(); err != nil {
			p.t.Fatal(err)
		}
	}
	p.start("default", 0, 1, 2)
	for i := range 3 { // they are ready when IDs come, half a minute later; the service has no address until then
		p.until(podName(i)+" serves timestamps", func() bool { return probe(i, "/ready/timestamps") == 200 })
	}
	if out := p.operator(fqdn(0), "member", "list"); len(voterLine.FindAllString(out, -1)) != 3 {
		p.t.Errorf("members of the restored cluster:\n%s", out)
	}
	p.stop(2, 1, 0)
}

// restore runs isotone restore in a pod, with the backup in its standard input.
func (p *pods) restore(values string, ordinal int, file string) {
	p.t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		p.t.Fatal(err)
	}
	script := fmt.Sprintf("echo %s > /proc/sys/kernel/hostname && exec %q restore /dev/stdin --yes --peers 'dns+srv:_peer._tcp.%s?count=3'", podName(ordinal), trial.Binary, podDomain)
	ctx, cancel := context.WithTimeout(p.t.Context(), podsTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--uts", "sh", "-c", script)
	cmd.Env, cmd.Stdin = append(p.env(p.readManifest(values), ordinal), "PATH="+os.Getenv("PATH")), bytes.NewReader(b)
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("restore in %s: %v\n%s", podName(ordinal), err, out)
	}
}
