package main

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"text/template"
)

//go:embed isotone.rb.tmpl
var formulaText string

// formula returns the formula for Homebrew, or nil if a binary that it names is missing.
func (r *release) formula() ([]byte, error) {
	data := struct {
		Version, Number, Homepage, Summary, Licence string
		Sums                                        map[string]string // by OS_ARCH
	}{r.version, strings.TrimPrefix(r.version, "v"), homepage, strings.ToUpper(summary[:1]) + summary[1:], licence, map[string]string{}}
	for _, system := range []string{"darwin", "linux"} {
		for _, arch := range architectures {
			binary, err := os.ReadFile(r.binary(system, arch))
			if errors.Is(err, os.ErrNotExist) {
				return nil, nil
			} else if err != nil {
				return nil, err
			}
			sum := sha256.Sum256(binary)
			data.Sums[system+"_"+arch] = hex.EncodeToString(sum[:])
		}
	}
	parsed, err := template.New("formula").Option("missingkey=error").Parse(formulaText)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, data)
	return out.Bytes(), err
}
