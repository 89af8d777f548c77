//go:build mutants

package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/isotone/isotone/internal/check/conformance"
)

// few bounds the mutants of each client in another language.
var few = flag.Int("few", 0, "run so many mutants of each client in another language, from all parts of its table; 0: all")

// language is a client in another language.
type language struct {
	name  string
	files string // of the client's directory, that its driver is built of
	// build is a shell script that writes another one to $OUT/run, which is the driver. It runs in a copy of the files, first as they are, then
	// for each mutant, with FILE, the one that has changed, and BASE, the first OUT. CLIENT is the client's own directory.
	build string
}

var languages = []language{
	{"python", "src driver.py", `
		cp -r src driver.py "$OUT"
		echo "exec ${PYTHON:-python3} $OUT/driver.py" >"$OUT/run"`},
	{"typescript", "src driver package.json tsconfig.json tsconfig.test.json", `
		[ -e "$CLIENT/node_modules" ] || (cd "$CLIENT" && npm ci --silent --no-audit --no-fund)
		ln -sfn "$CLIENT/node_modules" node_modules
		if [ -z "$BASE" ]; then
			node_modules/.bin/tsc -p tsconfig.test.json --noCheck --outDir "$OUT"
			cp package.json "$OUT"
		else
			cp -r "$BASE/." "$OUT"
			node -e '
				const fs = require("fs"), ts = require("typescript"), [file, out] = process.argv.slice(1);
				const got = ts.transpileModule(fs.readFileSync(file, "utf8"), { reportDiagnostics: true, compilerOptions: { target: "es2022", module: "es2022" } });
				for (const d of got.diagnostics) throw new Error(ts.flattenDiagnosticMessageText(d.messageText, " "));
				fs.writeFileSync(out, got.outputText);
			' "$FILE" "$OUT/${FILE%.ts}.js"
		fi
		echo "exec node $OUT/driver/main.js" >"$OUT/run"`},
	{"java", "src", `
		[ -e "$CLIENT/target/classpath" ] || (cd "$CLIENT" && mvn -q -B dependency:build-classpath -Dmdep.includeScope=test -Dmdep.outputFile=target/classpath)
		path=$OUT:$(cat "$CLIENT/target/classpath")
		[ -z "$BASE" ] || cp -r "$BASE/." "$OUT"
		javac --release 17 -nowarn -proc:none -cp "$path" -d "$OUT" ${FILE:-src/main/java/io/isotone/*.java src/test/java/io/isotone/Driver.java}
		echo "exec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp $path io.isotone.Driver" >"$OUT/run"`},
	{"rust", "src examples bench Cargo.toml Cargo.lock README.md", `
		# What check.sh has built is not built again, and not changed: others may use it now.
		built=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/isotone-rust}
		export CARGO_TARGET_DIR=$PWD/target CARGO_PROFILE_DEV_DEBUG=0
		if [ ! -e target ] && [ -e "$built/debug" ]; then
			mkdir -p target/debug
			cp -a "$built/debug/deps" "$built/debug/build" "$built/debug/.fingerprint" target/debug
		fi
		cargo build --quiet --locked --all-features --example conformance
		cp target/debug/examples/conformance "$OUT"
		echo "exec $OUT/conformance" >"$OUT/run"`},
}

// TestOtherLanguages_AreNoticed: each bug in the table mutants.txt of a client makes its scenario fail, and the client as it is does not.
func TestOtherLanguages_AreNoticed(t *testing.T) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			s := newShop(t, l)
			list := readMutants(t, filepath.Join(s.client, "mutants.txt"))
			list = someOf(t, list, s.copied)
			base := s.build(t, "", "")
			passes(t, list, "sh", filepath.Join(base, "run"))
			for _, m := range list {
				t.Run(m.testName(), func(t *testing.T) {
					t.Parallel()
					m.isNoticed(t, "sh", filepath.Join(s.mutate(t, m, base), "run"))
				})
			}
		})
	}
}

// someOf returns as many mutants as few says. The texts of all must stand in the files.
func someOf(t *testing.T, list []mutant, root string) (some []mutant) {
	t.Helper()
	for _, m := range list {
		m.replaced(t, root)
	}
	if *few == 0 {
		return list
	}
	count := min(*few, len(list))
	for i := range count {
		some = append(some, list[i*len(list)/count])
	}
	return some
}

// mutantsMin and scenariosMin bound what a table has.
const mutantsMin, scenariosMin = 12, 10

// readMutants reads a table: "name: scenario", the file, lines that begin with - and are replaced, and lines that begin with + and replace
// them, up to an empty line. A paragraph that begins with # is a comment.
func readMutants(t *testing.T, path string) (list []mutant) {
	t.Helper()
	scenarios := map[string]bool{}
	for block := range strings.SplitSeq(strings.TrimSpace(read(t, path)), "\n\n") {
		if strings.HasPrefix(block, "#") {
			continue
		}
		lines := strings.Split(block, "\n")
		name, scenario, ok := strings.Cut(lines[0], ": ")
		if !ok || len(lines) < 3 {
			t.Fatalf("%s: want a name, a scenario, a file, and lines with - and +: %q", path, block)
		}
		m := mutant{name: name, file: lines[1], scenario: scenario, old: marked(lines[2:], "-"), bug: marked(lines[2:], "+")}
		list, scenarios[scenario] = append(list, m), true
	}
	if len(list) < mutantsMin || len(scenarios) < scenariosMin {
		t.Fatalf("%s has %d mutants for %d scenarios, want %d for %d at least", path, len(list), len(scenarios), mutantsMin, scenariosMin)
	}
	return list
}

// marked returns the lines that begin with a mark, without it.
func marked(lines []string, mark string) string {
	var list []string
	for _, line := range lines {
		if text, ok := strings.CutPrefix(line, mark); ok {
			list = append(list, text)
		}
	}
	return strings.Join(list, "\n")
}

// passes plays the scenarios of all mutants to the client as it is.
func passes(t *testing.T, list []mutant, driver ...string) {
	t.Helper()
	wanted := map[string]bool{}
	for _, m := range list {
		wanted[m.scenario] = true
	}
	suite := conformance.Suite{Driver: driver}
	for _, sc := range conformance.Scenarios() {
		if wanted[sc.Name] {
			suite.Scenarios = append(suite.Scenarios, sc)
			delete(wanted, sc.Name)
		}
	}
	if len(wanted) > 0 {
		t.Fatalf("no such scenarios: %v", wanted)
	}
	report, err := conformance.Run(t.Context(), suite)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range report.Outcomes {
		if len(o.Faults) > 0 {
			t.Errorf("%s fails without a bug: %v", o.Name, o.Faults)
		}
	}
}

// shop is a copy of a client, in which one mutant after the other is built.
type shop struct {
	language
	client, copied string

	mu sync.Mutex
}

func newShop(t *testing.T, l language) *shop {
	t.Helper()
	client, err := filepath.Abs(filepath.Join("../../clients", l.name))
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{language: l, client: client, copied: t.TempDir()}
	copying := exec.CommandContext(t.Context(), "cp", append(append([]string{"-r"}, strings.Fields(l.files)...), s.copied)...)
	copying.Dir = client
	if out, err := copying.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return s
}

// mutate builds a mutant, and returns the directory with its driver.
func (s *shop) mutate(t *testing.T, m mutant, base string) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	path := filepath.Join(s.copied, m.file)
	defer write(t, path, read(t, path))
	write(t, path, m.replaced(t, s.copied))
	return s.build(t, base, m.file)
}

// build runs the script of the language, and returns OUT.
func (s *shop) build(t *testing.T, base, file string) string {
	t.Helper()
	out := t.TempDir()
	script := exec.CommandContext(t.Context(), "sh", "-euc", s.language.build)
	script.Dir = s.copied
	script.Env = append(os.Environ(), "CLIENT="+s.client, "OUT="+out, "BASE="+base, "FILE="+file)
	if text, err := script.CombinedOutput(); err != nil {
		t.Fatalf("the client is not built: %v\n%s", err, text)
	}
	return out
}
