package k8slease_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/google/go-cmp/cmp" // it and the next ones are what client-go's tests import
	_ "github.com/stretchr/testify/assert"
	_ "k8s.io/client-go/kubernetes/fake"
	_ "k8s.io/client-go/tools/record"
	_ "k8s.io/utils/clock/testing"
)

const (
	// clientGoSkipped has a candidate take a lease whose time is over for that candidate alone. A lock is free when the cluster says so, not before.
	clientGoSkipped = `^TestTryAcquireOrRenewLeases$/^acquire_from_led,_unacked_object$`
	// clientGoTests is how many tests and subtests there are besides.
	clientGoTests = 22
	// clientGoLock is the package of client-go's locks, and lockOfTests what stands for it.
	clientGoLock = "k8s.io/client-go/tools/leaderelection/resourcelock"
	lockOfTests  = "github.com/isotone/isotone/adapters/k8slease/testdata/clientgo/resourcelock"
)

// TestClientGo runs client-go's own tests of its elector over locks of a cluster. In its files, which come from the module, only the import of the package of locks is changed.
func TestClientGo(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "k8s.io/client-go/tools/leaderelection").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir, source := t.TempDir(), strings.TrimSpace(string(out))
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	for _, name := range []string{"leaderelection.go", "healthzadaptor.go", "metrics.go", "leaderelection_test.go", "healthzadaptor_test.go"} {
		text, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), strings.Replace(string(text), clientGoLock, lockOfTests, 1))
		there, _ := filepath.Abs(filepath.Join("testdata/clientgo/leaderelection", name)) // it fails without a working directory
		overlay.Replace[there] = filepath.Join(dir, name)
	}
	text, _ := json.Marshal(overlay) // it never fails
	write(t, filepath.Join(dir, "overlay.json"), string(text))
	cmd := exec.CommandContext(t.Context(), "go", "test", "-overlay", filepath.Join(dir, "overlay.json"), "-vet=off", "-count=1", "-timeout", "5m", "-v", "-skip", clientGoSkipped, "./testdata/clientgo/leaderelection")
	cmd.Env = append(os.Environ(), "K8SLEASE_NODES="+strings.Join(nodes.Addrs(), ","))
	out, err = cmd.CombinedOutput()
	if passed := strings.Count(string(out), "--- PASS: "); err != nil || passed != clientGoTests {
		t.Errorf("%d tests and subtests passed, want %d: %v\n%s", passed, clientGoTests, err, out)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
