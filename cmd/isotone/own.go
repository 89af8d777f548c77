package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ownCommand returns how a reader can run this program again, in the same directory.
func ownCommand() string {
	executable, err := os.Executable()
	if err != nil {
		return "isotone"
	}
	inPath, _ := exec.LookPath("isotone")
	return commandFor(executable, os.Args[0], inPath, inModule())
}

// inModule reports whether the current directory is that of the source.
func inModule() bool {
	_, err := os.Stat(filepath.Join("cmd", "isotone", "main.go"))
	return err == nil
}

// cached is a file in the build cache of Go, from which "go run" may start a program.
var cached = regexp.MustCompile(`/[0-9a-f]{2}/[0-9a-f]{64}-d/[^/]+$`)

// commandFor returns how to run executable, which was started as arg0. inPath is the isotone
// that PATH has, or ""; inModule says that ./cmd/isotone is the source.
func commandFor(executable, arg0, inPath string, inModule bool) string {
	slashed := filepath.ToSlash(executable)
	built := slices.ContainsFunc(strings.Split(slashed, "/"), func(dir string) bool { return strings.HasPrefix(dir, "go-build") })
	switch {
	case (built || cached.MatchString(slashed)) && inModule:
		return "go run ./cmd/isotone"
	case built || cached.MatchString(slashed):
		return "go run github.com/isotone/isotone/cmd/isotone"
	case inPath != "" && sameFile(inPath, executable):
		return "isotone"
	case strings.ContainsAny(arg0, `/\`) && !strings.ContainsAny(arg0, " '\"$&;()"):
		return arg0
	}
	return "'" + strings.ReplaceAll(executable, "'", `'\''`) + "'"
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}
