package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/isotone/isotone/internal/check/parallel"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/proxy/balance"
)

// asCommand has this test binary be the command, for the shells.
const asCommand = "ISOTONE_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(run(os.Args[1:], console{os.Stdout, os.Stderr}))
	}
	os.Exit(parallel.Tests{M: m, N: 6}.Run())
}

type completionCase struct {
	words string
	want  string
	bash  bool // broken up as only bash does
}

// completionCases are command lines after isotone, with a bar between words, and what the last
// word may become: the words, or the kind.
var completionCases = []completionCase{
	{words: "me", want: "member"},
	{words: "comp", want: "completion"},
	{words: "completion|", want: "bash zsh fish"},
	{words: "member|", want: "list add promote remove replace update reconcile"},
	{words: "member|re", want: "remove replace reconcile"},
	{words: "leader|t", want: "transfer"},
	{words: "leader|--json|tr", want: "transfer"},
	{words: "help|leader|t", want: "transfer"},
	{words: "nonsense|", want: ""},
	{words: "member|add|1|--l", want: "--learner"},
	{words: "leader|transfer|--en", want: "--endpoint"},
	{words: "leader|transfer|--endpoint|", want: ""},
	{words: "serve|--read-mode|", want: "quorum lease"},
	{words: "serve|--read-mode=l", want: "--read-mode=lease"},
	{words: "serve|--read-mode|=", want: "quorum lease", bash: true},
	{words: "serve|--read-mode|=|le", want: "lease", bash: true},
	{words: "serve|--debug|--pre", want: "--pretty"},
	{words: "serve|--debug|=|1|--pre", want: "--pretty", bash: true},
	{words: "serve|--debug=", want: "--debug=true --debug=false"},
	{words: "serve|--fault", want: ""},
	{words: "serve|--data-dir|", want: "dirs"},
	{words: "serve|--config|", want: "files"},
	{words: "serve|--tls-cert=", want: "files"},
	{words: "proxy|--strategy|r", want: "random round-robin"},
	{words: "proxy|--no-", want: "--no-health-connect --no-ids"},
	{words: "proxy|--no-i", want: "--no-ids"},
	{words: "bench|-m|l", want: "lease"},
	{words: "bench|--target|a|:|8080|--comp", want: "--compare", bash: true},
	{words: "stats|a.log|", want: "files"},
	{words: "backup|--data-dir|d|", want: "files"},
	{words: "backup|file|--f", want: "--force"},
	{words: "backup|--|", want: "files"},
	{words: "user|", want: "hash check"},
	{words: "user|check|", want: "files"},
	{words: "user|hash|--password-file|", want: "files"},
	{words: "serve|--|--de", want: ""},
	{words: "version|", want: "--help --json"},
}

func TestCompletion_NamesWhatMayFollow(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	for _, tc := range completionCases {
		args := append([]string{"complete", "--"}, strings.Split(tc.words, "|")...)
		code, out, errs := command(args...)
		kind, rest, _ := strings.Cut(out, "\n")
		var got []string
		for line := range strings.Lines(rest) {
			text, _, described := strings.Cut(line, "\t")
			if !described {
				t.Errorf("%s: the line %q has no tab", tc.words, line)
			}
			got = append(got, text)
		}
		if kind != completeWords {
			got = append(got, kind)
		}
		if code != 0 || errs != "" || strings.Join(got, " ") != tc.want {
			t.Errorf("%s: exit code %d, %q%s, want %q", tc.words, code, got, errs, tc.want)
		}
	}
}

// shell returns a command of a shell in an environment in which isotone is this test binary, and
// the directory that it runs in. It skips the test without that shell.
func shell(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, dir := t.TempDir(), t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "isotone")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "a dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), asCommand+"=1", "HOME="+dir, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	return cmd
}

// filled returns what a shell proposes for a kind where [shell] runs it.
func filled(want string) string {
	switch want {
	case completeFiles:
		return "a dir\na file"
	case completeDirs:
		return "a dir"
	}
	return strings.ReplaceAll(want, " ", "\n")
}

func runShell(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

// allCompletions has one shell complete the command lines of the chosen cases, one after the other, as a terminal does, and returns what it
// proposes for each.
func allCompletions(t *testing.T, chosen func(completionCase) bool, name string, args ...string) map[completionCase]string {
	t.Helper()
	var cases []completionCase
	for _, tc := range completionCases {
		if chosen(tc) {
			cases, args = append(cases, tc), append(args, tc.words)
		}
	}
	parts := strings.SplitAfter(runShell(t, shell(t, name, args...)), "end of the case\n")
	if len(parts) != len(cases)+1 || parts[len(cases)] != "" {
		t.Fatalf("%s answered %d cases of %d: %q", name, len(parts)-1, len(cases), parts)
	}
	all := map[completionCase]string{}
	for i, tc := range cases {
		all[tc] = strings.TrimSuffix(parts[i], "end of the case\n")
	}
	return all
}

func TestCompletion_InBash(t *testing.T) {
	t.Parallel()
	const script = `source <(isotone completion bash)
[[ $(complete -p isotone) == *_isotone* ]] || exit 9
for line; do
	IFS='|' read -r -a COMP_WORDS <<<"isotone|$line"
	[[ $line == *'|' ]] && COMP_WORDS+=("")
	COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
	_isotone isotone "${COMP_WORDS[COMP_CWORD]}" || exit 8
	printf '%s\n' "${COMPREPLY[@]}" | sort
	echo "end of the case"
done`
	all := allCompletions(t, func(completionCase) bool { return true }, "bash", "-c", script, "bash")
	for tc, got := range all {
		want := strings.Split(filled(tc.want), "\n")
		slices.Sort(want)
		if strings.TrimSuffix(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: %q, want %q", tc.words, got, want)
		}
	}
}

func TestCompletion_InZsh(t *testing.T) {
	t.Parallel()
	// The functions of zsh that need its line editor are replaced.
	const script = `compdef() { registered=$2 }
_describe() { local i; for i in "${(@P)2}"; do print -r -- "${${i%%[^\\]:*}}${${i#${i%%[^\\]:*}}[1]}"; done }
_files() { [[ $1 == -/ ]] && print -r -- "a dir" || print -rl -- "a dir" "a file" }
compset() { PREFIX=${PREFIX#*=} }
source <(isotone completion zsh)
[[ $registered == isotone ]] || exit 9
for line; do
	words=(isotone "${(@s:|:)line}") CURRENT=${#words} PREFIX=${words[-1]}
	_isotone
	echo "end of the case"
done`
	all := allCompletions(t, func(tc completionCase) bool { return !tc.bash }, "zsh", "-f", "-c", script, "zsh")
	for tc, got := range all {
		if strings.TrimSuffix(got, "\n") != filled(tc.want) {
			t.Errorf("%s: %q, want %q", tc.words, got, filled(tc.want))
		}
	}
}

func TestCompletion_InFish(t *testing.T) {
	t.Parallel()
	const script = `isotone completion fish | source
for line in $argv
	complete -C (string join -- ' ' isotone (string split '|' -- $line)) | string replace -r '\t.*' ''
	echo "end of the case"
end`
	chosen := func(tc completionCase) bool { return !tc.bash && !strings.HasPrefix(tc.words, "help|") }
	all := allCompletions(t, chosen, "fish", "--no-config", "-c", script)
	for tc, got := range all {
		if tc.want == "" && got != "" {
			t.Errorf("%s: %q", tc.words, got)
		}
		for want := range strings.SplitSeq(filled(tc.want), "\n") {
			if !strings.Contains(got, strings.ReplaceAll(want, " ", `\ `)) && !strings.Contains(got, want) {
				t.Errorf("%s: %q is missing in %q", tc.words, want, got)
			}
		}
	}
}

// Every script names the command that it asks, and is well-formed where its shell can tell.
func TestCompletion_ScriptsAreWhole(t *testing.T) {
	for name, check := range map[string][]string{"bash": {"-n"}, "zsh": {"-n"}, "fish": {"--no-execute"}} {
		code, out, _ := command("completion", name)
		if code != 0 || !strings.Contains(out, " complete -- ") || !strings.Contains(out, "files") || !strings.Contains(out, "dirs") || !strings.HasSuffix(out, "\n") {
			t.Errorf("%s: exit code %d\n%s", name, code, out)
		}
		if _, help, _ := command("completion", name, "--help"); strings.Count(help, "isotone completion "+name) != 2 {
			t.Errorf("%s: the help does not say how to install the script:\n%s", name, help)
		}
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
		if path, err := exec.LookPath(name); err == nil {
			runShell(t, exec.Command(path, append(check, file)...))
		}
	}
}

// A setting that takes a file or a directory says so, and the listed values are those that the
// command takes.
func TestCompletion_TagsAreRight(t *testing.T) {
	var c cli
	app, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	_ = kong.Visit(app.Model, func(v kong.Visitable, next kong.Next) error {
		value, ok := v.(*kong.Value)
		if flag, is := v.(*kong.Flag); is {
			value, ok = flag.Value, true
			for placeholder, kind := range map[string]string{"FILE": completeFiles, "DIR": completeDirs} {
				if flag.PlaceHolder == placeholder && flag.Tag.Get("complete") != kind {
					t.Errorf("--%s takes a %s: want complete:%q", flag.Name, placeholder, kind)
				}
			}
		}
		if ok {
			seen[value.Name] = value.Tag.Get("complete")
		}
		return next(nil)
	})
	var strategies []string
	for _, s := range balance.Strategies() {
		strategies = append(strategies, string(s))
	}
	if want := strings.Join(strategies, ","); seen["strategy"] != want {
		t.Errorf("--strategy: %q, want %q", seen["strategy"], want)
	}
	field, _ := reflect.TypeFor[config.Flags]().FieldByName("ReadMode")
	for mode := range strings.SplitSeq(field.Tag.Get("complete"), ",") {
		if code, _, errs := command("serve", "--node-id", "0", "--read-mode", mode); code != exitUsage || strings.Contains(errs, "READ_MODE") {
			t.Errorf("--read-mode %s: %s", mode, errs)
		}
	}
}
