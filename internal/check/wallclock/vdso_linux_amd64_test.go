package wallclock

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone/internal/check/child"
)

// known returns the vDSO of this process. The test is skipped where it has a form that this package does not know.
func known(t *testing.T) *vdso {
	t.Helper()
	v, err := own()
	if err != nil {
		t.Skip(err)
	}
	return v
}

// TestDenied_OnlyForAReason: another form of the vDSO, or processes that must not write to others.
func TestDenied_OnlyForAReason(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "60")
	if err := child.Start(cmd); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	_, form := own()
	image, at, denied := readVDSO(cmd.Process.Pid)
	if denied == nil {
		denied = withMemory(cmd.Process.Pid, os.O_WRONLY, func(memory *os.File) error {
			_, err := memory.WriteAt(image, at) // what is there already
			return err
		})
	}
	if why := Denied(); (why == "") != (form == nil && denied == nil) {
		t.Errorf("%q, given the form: %v, and the rights: %v", why, form, denied)
	}
}

// TestParseVDSO_RefusesOtherForms: without a function, without room for the code, and what is no program.
func TestParseVDSO_RefusesOtherForms(t *testing.T) {
	t.Parallel()
	v := known(t)
	for name, image := range map[string][]byte{
		"no function": bytes.ReplaceAll(v.image, []byte("__vdso_time"), []byte("__vdso_tide")),
		"no room":     v.image[:v.code+len(code)-1],
		"no program":  bytes.Repeat([]byte("x"), len(v.image)),
		"empty":       nil,
	} {
		if _, err := parseVDSO(image); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestParseVDSO_LeavesWhatIsNeeded: what changes is the beginnings of the functions, and what programs do not load.
func TestParseVDSO_LeavesWhatIsNeeded(t *testing.T) {
	t.Parallel()
	v := known(t)
	image := bytes.Clone(v.image)
	v.patch(image, time.Hour)
	file, err := elf.NewFile(bytes.NewReader(v.image))
	if err != nil {
		t.Fatal(err)
	}
	for at := range image {
		if image[at] == v.image[at] {
			continue
		}
		_, first := v.jumps[at]
		for _, p := range file.Progs {
			if uint64(at) >= p.Off && uint64(at) < p.Off+p.Filesz && !first && !v.within(at) {
				t.Errorf("byte %#x changes", at)
			}
		}
	}
	for at := range v.jumps {
		if v.within(at) || !v.within(at+1) || !v.within(at+jumpSize-1) || v.within(at+jumpSize) {
			t.Errorf("of a function at %#x, the second to the fifth byte are those at which no thread may be", at)
		}
	}
}

// TestSet_RefusesAnotherVDSO: its functions may be elsewhere.
func TestSet_RefusesAnotherVDSO(t *testing.T) {
	t.Parallel()
	v := known(t)
	if why := Denied(); why != "" {
		t.Skip(why)
	}
	changed, longer := *v, *v
	changed.image = bytes.Clone(v.image)
	changed.image[v.code-1]++
	longer.image = append(bytes.Clone(v.image), make([]byte, 4096)...)
	longer.code = len(v.image)
	cmd := exec.Command("sleep", "60")
	if err := child.Start(cmd); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	for name, other := range map[string]vdso{"changed": changed, "longer": longer} {
		if err := other.set(cmd.Process.Pid, time.Hour); err == nil || !strings.Contains(err.Error(), "another vDSO") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
